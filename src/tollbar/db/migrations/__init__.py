"""The migration scripts of every package's tables, run by `tollbar.db.migrate`."""
