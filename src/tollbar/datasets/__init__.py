"""Datasets: names, versions, splits, the task format read strictly, digests, and what a selector means."""
