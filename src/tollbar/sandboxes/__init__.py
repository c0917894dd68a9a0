"""Isolation: how one command runs so that it cannot harm the host, another trial, or a score."""
