"""Durable work behind one small port; the only package that imports the engine library.

Pickled rows are refused from the first moment: the guard is in place before any other module of this package.
"""

from tollbar.engine import guard

guard.install()
