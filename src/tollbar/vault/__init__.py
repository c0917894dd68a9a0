"""Secrets that can be written and used, never read back; and the redactor that takes them out of everything else."""
