"""Durable work behind one small port; the only package that imports the engine library."""
