"""The agent of our own: a model, a shell and file tools, one gateway call a turn."""
