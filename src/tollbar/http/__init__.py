"""The HTTP interface: /v1, mounted again at /api/v1."""
