"""The same task with others' runners, each in a virtual environment of its own, in the same run as tollbar."""
