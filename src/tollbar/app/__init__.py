"""Composition root: builds objects, joins packages, and holds the commands that need the database."""
