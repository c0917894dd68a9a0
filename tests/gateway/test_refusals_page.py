"""The page of errors has the gateway's codes, all of them and no other."""

from __future__ import annotations

import re

from tests.contract.source import ROOT

from tollbar.gateway.dialects import Dialect, refusal
from tollbar.gateway.errors import Code


def test_each_code_is_documented_with_the_statuses_that_it_has() -> None:
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    section = page.partition("## Refusals of the model gateway\n")[2].partition("\n## ")[0]
    documented = dict(re.findall(r"^\| `([A-Z_]+)` \| ([\d /]+) \|", section, re.MULTILINE))
    made = {}
    for code in Code:
        claude, others = refusal(Dialect.MESSAGES, code, "x").status, refusal(Dialect.GEMINI, code, "x").status
        made[str(code)] = str(claude) if claude == others else f"{claude} / {others}"
    assert documented == made
