"""The command line: noun, verb; data on stdout, everything else on stderr."""
