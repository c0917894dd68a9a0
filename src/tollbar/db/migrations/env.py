"""Alembic's entry point: runs the scripts on the connection that `tollbar.db.migrate` hands in."""

from alembic import context

# Only the search path's own schema: the engine keeps its tables in schema `dbos` and migrates them itself.
context.configure(connection=context.config.attributes["connection"], include_schemas=False)
with context.begin_transaction():
    context.run_migrations()
