"""Pages carry no code or style of their own, and nothing that a run wrote is trusted as markup."""

from __future__ import annotations

import ast
import re
from typing import Final

from tests.contract.source import name_of, python_files, repository_files, tree

_FORBIDDEN: Final = {
    "an inline style": re.compile(r"<style\b|\sstyle\s*=", re.IGNORECASE),
    "an inline script": re.compile(r"<script(?![^>]*\ssrc\s*=)", re.IGNORECASE),
    "an inline handler": re.compile(r"<[^>]*\son[a-z]+\s*=", re.IGNORECASE),
    "a script address": re.compile(r"javascript:", re.IGNORECASE),
    "the safe filter": re.compile(r"\|\s*safe\b"),
    "escaping switched off": re.compile(r"autoescape\s+false", re.IGNORECASE),
    "an address of another host": re.compile(r"(?:src|href|action)\s*=\s*[\"'](?:https?:)?//", re.IGNORECASE),
}


def problems(text: str) -> list[str]:
    """Returns what a template may not hold and this one does, each with its line."""
    return [
        f"line {text.count(chr(10), 0, match.start()) + 1}: {what}"
        for what, pattern in _FORBIDDEN.items()
        for match in pattern.finditer(text)
    ]


def test_no_template_carries_inline_code_or_style() -> None:
    found = {
        name_of(path): problems(path.read_text(encoding="utf-8"))
        for path in repository_files()
        if path.suffix == ".html" and "src" in path.parts
    }
    assert found, "there are templates"
    assert {name: found_there for name, found_there in found.items() if found_there} == {}


def test_each_forbidden_form_is_seen() -> None:
    planted = [
        "<p style='x'>",
        "<script>1</script>",
        "<b onclick='x'>",
        '<a href="javascript:1">',
        "{{ text | safe }}",
        "{% autoescape false %}",
        '<img src="//elsewhere/x">',
    ]
    assert [text for text in planted if not problems(text)] == []
    assert problems('<script src="/static/vendor/x.js"></script><p class="ok">{{ x }}</p>') == []


def test_no_code_calls_text_safe_markup() -> None:
    made = [
        f"{name_of(path)}:{node.lineno}"
        for path in python_files("src")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Markup"
    ]
    assert made == []
