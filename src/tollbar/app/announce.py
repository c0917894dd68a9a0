"""What a process with interfaces tells whoever started it, and local commands that look for it."""

from __future__ import annotations

import json
import sys
import webbrowser
from typing import Any


def announce(facts: dict[str, Any], *, as_json: bool, browser: bool) -> None:
    """Prints the facts: one JSON line on stdout, or lines for a person on stderr and, when asked, the console."""
    if as_json:
        print(json.dumps(facts), flush=True)
        return
    header = '--header "Authorization: Bearer $TOLLBAR_API_KEY"'
    lines = [
        "",
        f"  tollbar runs at   {facts['url']}",
        f"  sign in (once)    {facts['sign_in_url']}",
        f"  data              {facts['data_dir']}",
        "",
        "  connect a coding agent:",
        f"    claude mcp add --transport http tollbar {facts['mcp_urls']['evaluation']} {header}",
        f"    with TOLLBAR_API_KEY={facts['api_key']}",
        "",
        "  try it:  tollbar jobs submit demo/mini@1 --max-cost 0.05 --watch",
        "",
    ]
    print("\n".join(lines), file=sys.stderr, flush=True)
    if browser:
        webbrowser.open(facts["sign_in_url"])
