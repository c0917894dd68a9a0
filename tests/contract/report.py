"""Prints what is aimed at and not enforced: sizes, docstrings, and what the requirements wait for."""

from __future__ import annotations

import sys

from tests.contract.requirements import load, report
from tests.contract.test_docstrings import docstring_report
from tests.contract.test_sizes import size_report

if __name__ == "__main__":
    sys.stdout.write("\n\n".join([size_report(), docstring_report(), report(load())]) + "\n")
