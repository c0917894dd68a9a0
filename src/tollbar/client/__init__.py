"""Typed HTTP client of the server, for the command line and for users' scripts."""
