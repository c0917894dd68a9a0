"""Every read route of a server with its answer, so that two servers can be compared."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any, Final

import httpx2

_PARAMETER: Final = re.compile(r"\{([a-z0-9_]+)\}")


def read_everything(http: httpx2.Client) -> dict[str, tuple[int, Any]]:
    """Returns (status, content) of every GET route of the served document, for everything that the key can see.

    Lists are read in pages of two to their end. JSON stands as it is, other content as its type and hash.
    """
    document = http.get("/v1/openapi.json").json()
    templates = sorted(path for path, methods in document["paths"].items() if "get" in methods)
    names = _names(http)
    answers: dict[str, tuple[int, Any]] = {}
    for template in templates:
        for path in _paths(template, names):
            _read(http, path, answers)
    for path in names["page"]:
        _read(http, path, answers)
    return answers


def _read(http: httpx2.Client, path: str, answers: dict[str, tuple[int, Any]]) -> None:
    """Reads a path, and the pages after it; pages are told by their number, because cursors are the database's own."""
    answer, number = http.get(path), 1
    if answer.headers.get("content-type", "").startswith("application/json"):
        content = answer.json()
        answers[path] = answer.status_code, _said(content)
        # The cursor of a log goes on behind its end, where there are no items yet.
        while isinstance(content, dict) and content.get("next_cursor") and content.get("items"):
            number += 1
            content = http.get(f"{path.partition('?')[0]}?cursor={content['next_cursor']}").json()
            answers[f"{path} page {number}"] = 200, _said(content)
        if isinstance(content, dict) and "items" in content and "?" not in path and "/window" not in path:
            _pages(http, path, answers)
        return
    kind = answer.headers.get("content-type")
    body = answer.content if kind != "text/html; charset=utf-8" else _lasting(answer.text).encode()
    answers[path] = answer.status_code, [kind, hashlib.sha256(body).hexdigest(), len(body)]


def _said(content: Any) -> Any:
    """Returns an answer without what belongs to the moment: its time, cursors, and requests within the last minute."""
    if isinstance(content, dict):
        passing = {"observed_at"}
        if content.get("name") == "requests_per_minute":
            passing |= {"used", "resets_at"}
        kept = {name: _said(value) for name, value in content.items() if name not in passing}
        if "eof" in kept:
            kept.pop("next_cursor", None)
        elif "next_cursor" in kept:
            kept["next_cursor"] = kept["next_cursor"] is not None
        return kept
    return [_said(value) for value in content] if isinstance(content, list) else content


def _lasting(page: str) -> str:
    """Returns a page without what differs at every look: how long ago things were."""
    return re.sub(r"\b\d+ (?:s|min|h|d) ago\b|just now", "", page)


def _pages(http: httpx2.Client, path: str, answers: dict[str, tuple[int, Any]]) -> None:
    query, number = "?limit=2", 0
    while True:
        number += 1
        answer = http.get(f"{path}{query}").json()
        answers[f"{path}?limit=2 page {number}"] = 200, _said(answer)
        if not answer.get("next_cursor") or not answer["items"]:
            return
        query = f"?limit=2&cursor={answer['next_cursor']}"


def _names(http: httpx2.Client) -> dict[str, list[str]]:
    """Returns the values of each parameter; of nested ones as a path below their parent."""

    def items(path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor = None
        while True:
            page = http.get(path, params={"cursor": cursor} if cursor else {}).json()
            found += page["items"]
            cursor = page.get("next_cursor")
            if not cursor:
                return found

    def encoded(name: str) -> str:
        return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")

    jobs = [item["job_id"] for item in items("/v1/job")]
    trials = [item["trial_id"] for item in items("/v1/trials")]
    datasets = [encoded(item["name"]) for item in items("/v1/datasets")]
    workspaces = [item["workspace_id"] for item in items("/v1/workspaces")]
    return {
        "job_id": jobs,
        "trial_id": trials,
        "workspace_id": workspaces,
        "project_id": [
            f"{workspace}/{item['project_id']}"
            for workspace in workspaces
            for item in items(f"/v1/workspaces/{workspace}/projects")
        ],
        "name": ["nobody/nothing"],
        "artifact_id": [
            f"{trial}/{item['artifact_id']}" for trial in trials for item in items(f"/v1/trials/{trial}/artifacts")
        ],
        "dataset": datasets,
        "revision": [
            f"{name}/{item['version']}" for name in datasets for item in items(f"/v1/datasets/{name}/versions")
        ],
        "profile": [encoded(item["name"]) for item in items("/v1/profiles")],
        "page": ["/", *(f"/jobs/{job}" for job in jobs)],
    }


def _paths(template: str, names: dict[str, list[str]]) -> list[str]:
    parameters = _PARAMETER.findall(template)
    noun = "dataset" if template.startswith("/v1/datasets/") else "profile"
    parameters = [noun if name == "b64" else name for name in parameters]
    if not parameters:
        return [template]
    filled: list[str] = []
    for value in names[parameters[-1]]:  # a parameter that this page does not know is a KeyError: it must learn it
        parts = value.split("/") if len(parameters) > 1 else [value]
        path = template
        for part in parts:
            path = _PARAMETER.sub(part, path, count=1)
        filled.append(path)
    return filled
