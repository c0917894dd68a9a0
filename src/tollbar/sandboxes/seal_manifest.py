"""The manifest of a seal: canonical JSON that says everything that a later grading needs.

```json
{
  "entries": [
    {
      "destination": "app/report.txt",
      "exclude": [],
      "kind": "file",
      "members": [
        {"kind": "file", "mode": 420, "path": "app/report.txt", "sha256": "<64 hex>", "size": 5},
        {"kind": "directory", "path": "app/sub"},
        {"kind": "link", "path": "app/latest", "target": "sub/report.txt"}
      ],
      "service": "main",
      "source": "/app/report.txt",
      "status": "ok"
    }
  ],
  "refusals": [{"name": "app/pipe", "reason": "NOT_A_FILE"}],
  "version": 1
}
```

`source` is the absolute path in the sandbox, `destination` its place among the artifacts, and every member's `path`
is its place, too: the destination itself for a file, below it for what lies in a folder. What an earlier entry took to
the same place has no members of its own. `kind` is `file`, `directory` or (in an earlier entry's folder) `link`; for
an entry that is missing or was refused as a whole it says what the image has at that path, null for nothing.
`mode` is 420 (0644) or 493 (0755). Entries stand as they were declared, members by the bytes of their path, refusals
by name.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from tollbar.kit.jsonio import canonical, loads_strict
from tollbar.sandboxes.interface import Refusal, Seal, SealedEntry, SealedFile
from tollbar.sandboxes.overlay_walk import Kind

VERSION: Final = 1
MAIN_SERVICE: Final = "main"
PLAIN_MODE: Final = 0o644
PROGRAM_MODE: Final = 0o755
FOLDER_MODE: Final = 0o755
LINK_MODE: Final = 0o777


class Status(StrEnum):
    """What became of a declared entry."""

    OK = "ok"
    EMPTY = "empty"
    MISSING = "missing"
    REFUSED = "refused"
    SKIPPED = "skipped"


class Reason(StrEnum):
    """Why a member was not sealed."""

    LINK_ABSOLUTE = "LINK_ABSOLUTE"
    LINK_ESCAPES = "LINK_ESCAPES"
    NOT_A_FILE = "NOT_A_FILE"
    BAD_NAME = "BAD_NAME"
    TOO_DEEP = "TOO_DEEP"
    TOO_LARGE = "TOO_LARGE"
    TOO_MANY = "TOO_MANY"
    TOTAL_TOO_LARGE = "TOTAL_TOO_LARGE"
    CHANGED = "CHANGED"


@dataclass(frozen=True)
class ManifestEntry:
    """A declared path with what was sealed of it; has every attribute of `SealedEntry`."""

    source: str
    destination: str
    status: Status
    kind: Kind | None = None
    members: tuple[SealedFile, ...] = ()
    exclude: tuple[str, ...] = ()
    service: str = MAIN_SERVICE


@dataclass(frozen=True)
class SealManifest:
    """A manifest that was read; `sha256` is the hash of the bytes that were read."""

    entries: tuple[ManifestEntry, ...]
    refusals: tuple[Refusal, ...]
    sha256: str


def make_seal(entries: Iterable[ManifestEntry], refusals: Iterable[Refusal]) -> Seal:
    """Returns the seal of these entries with its manifest."""
    kept = tuple(entries)
    refused = tuple(sorted(refusals, key=lambda refusal: (refusal.name, refusal.reason)))
    document = {
        "version": VERSION,
        "entries": [_entry_json(entry) for entry in kept],
        "refusals": [{"name": refusal.name, "reason": refusal.reason} for refusal in refused],
    }
    manifest = canonical(document)
    plain = tuple(SealedEntry(entry.source, entry.destination, entry.status, entry.members) for entry in kept)
    return Seal(plain, refused, manifest, hashlib.sha256(manifest).hexdigest())


def read_manifest(data: bytes) -> SealManifest:
    """Reads the bytes of a manifest. Raises `ValueError` when they are no manifest of a version known here."""
    document = loads_strict(data)
    try:
        if document["version"] != VERSION:
            msg = f"a seal manifest of version {document['version']} is not known here"
            raise ValueError(msg)
        entries = tuple(_read_entry(entry) for entry in document["entries"])
        refusals = tuple(Refusal(refusal["name"], refusal["reason"]) for refusal in document["refusals"])
    except (KeyError, TypeError) as error:
        msg = "these bytes are not the manifest of a seal"
        raise ValueError(msg) from error
    return SealManifest(entries, refusals, hashlib.sha256(data).hexdigest())


def sorted_members(members: Iterable[SealedFile]) -> tuple[SealedFile, ...]:
    """Returns members in the manifest's order."""
    return tuple(sorted(members, key=lambda member: os.fsencode(member.path)))


def _entry_json(entry: ManifestEntry) -> dict[str, Any]:
    return {
        "source": entry.source,
        "destination": entry.destination,
        "exclude": list(entry.exclude),
        "service": entry.service,
        "status": entry.status.value,
        "kind": None if entry.kind is None else entry.kind.value,
        "members": [_member_json(member) for member in sorted_members(entry.members)],
    }


def _member_json(member: SealedFile) -> dict[str, Any]:
    common: dict[str, Any] = {"kind": member.kind, "path": member.path}
    if member.kind == Kind.FILE:
        return {**common, "size": member.size, "mode": member.mode, "sha256": member.sha256}
    return {**common, "target": member.target} if member.kind == Kind.LINK else common


def _read_entry(entry: Mapping[str, Any]) -> ManifestEntry:
    return ManifestEntry(
        source=entry["source"],
        destination=entry["destination"],
        status=Status(entry["status"]),
        kind=None if entry["kind"] is None else Kind(entry["kind"]),
        members=tuple(_read_member(member) for member in entry["members"]),
        exclude=tuple(entry["exclude"]),
        service=entry["service"],
    )


def _read_member(member: Mapping[str, Any]) -> SealedFile:
    kind = Kind(member["kind"])
    path: str = member["path"]
    if kind is Kind.FILE:
        return SealedFile(path, kind, int(member["size"]), int(member["mode"]), sha256=member["sha256"])
    if kind is Kind.LINK:
        return SealedFile(path, kind, 0, LINK_MODE, target=member["target"])
    if kind is Kind.FOLDER:
        return SealedFile(path, kind, 0, FOLDER_MODE)
    msg = f"{path!r} is neither a file, a folder nor a link"
    raise ValueError(msg)
