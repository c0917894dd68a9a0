"""Database sessions, the declarative base, migrations, and the embedded server."""
