"""Blobs by SHA-256, artifact rows, and bounded windows on untrusted files."""
