"""Rules of artifacts: recorded once, listed by name, read whole or in bounded windows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.artifacts import store
from tollbar.artifacts.blobs import BlobStore
from tollbar.artifacts.errors import ArtifactNotFound, ArtifactNotReady, BlobMissing, invalid_window
from tollbar.artifacts.media import HEAD_BYTES, is_text, media_type
from tollbar.artifacts.schemas import ArtifactState, NewArtifact, UploadState, artifact_object
from tollbar.artifacts.tables import ArtifactRow
from tollbar.artifacts.windows import MARGIN, cut
from tollbar.kit.clock import Clock
from tollbar.kit.ids import is_id, new_id
from tollbar.kit.paging import Page, PageRequest, page_request
from tollbar.kit.text import is_portable_path

DEFAULT_WINDOW: Final = 16_384
MAX_WINDOW: Final = 32_768

_AT_ONCE: Final = 64


async def record(
    session: AsyncSession,
    blobs: BlobStore,
    clock: Clock,
    items: Sequence[NewArtifact],
    *,
    trial_id: str,
    project_id: str,
    try_no: int,
    replaces_older: bool = False,
) -> None:
    """Records what a try of a Trial left, in the caller's transaction.

    Of two items with one name the first counts; what the Trial has under that name already is replaced. With
    `replaces_older` (a new seal) everything that older tries recorded goes. Raises `ValueError` for a name that no
    listing may hold.
    """
    if replaces_older and try_no > 1:
        await store.drop_older_tries(session, trial_id, try_no)
    named = {item.name: item for item in reversed(items)}
    for name in named:
        if not is_portable_path(name):
            msg = f"{name!r} cannot be the name of an artifact"
            raise ValueError(msg)
    types = await _media_types(blobs, list(named.values()))
    now = clock.now()
    rows = [
        {
            "id": new_id("art"),
            "trial_id": trial_id,
            "project_id": project_id,
            "try_no": try_no,
            "name": item.name,
            "kind": item.kind.value,
            "media_type": kind,
            "size": item.size,
            "sha256": item.sha256,
            "state": ArtifactState.MISSING if item.sha256 is None else ArtifactState.AVAILABLE,
            "upload_state": UploadState.FAILED if item.sha256 is None else UploadState.UPLOADED,
            "created_at": now,
        }
        for item, kind in zip(named.values(), types, strict=True)
    ]
    await store.put(session, rows)


async def _media_types(blobs: BlobStore, items: Sequence[NewArtifact]) -> list[str | None]:
    types: list[str | None] = []
    for start in range(0, len(items), _AT_ONCE):
        types += await asyncio.gather(*(_media_type(blobs, item) for item in items[start : start + _AT_ONCE]))
    return types


async def _media_type(blobs: BlobStore, item: NewArtifact) -> str | None:
    if item.sha256 is None or item.size is None:
        return None
    return media_type(await blobs.read_range(item.sha256, 0, min(item.size, HEAD_BYTES)))


async def list_page(session: AsyncSession, actor: Principal, trial_id: str, page: PageRequest) -> Page[dict[str, Any]]:
    """Returns a page of a Trial's artifacts by name; a Trial of another project has none."""
    rows = await store.page(session, actor, trial_id, page)
    found = page.page(rows, lambda row: [row.name])
    return Page([artifact_object(row) for row in found.items], found.next_cursor)


def page_scope(actor: Principal, trial_id: str) -> dict[str, str]:
    """Names the list of a Trial's artifacts, so that the first page of a result is continued by the list."""
    return {"route": "artifacts", "project": actor.project_id, "trial": trial_id}


async def first_page(session: AsyncSession, actor: Principal, trial_id: str) -> Page[dict[str, Any]]:
    """Returns the first page, as a Trial's result holds it."""
    return await list_page(session, actor, trial_id, page_request(None, None, scope=page_scope(actor, trial_id)))


async def get(session: AsyncSession, actor: Principal, trial_id: str, artifact_id: str) -> ArtifactRow:
    """Returns an artifact that has content: `size` and `sha256` are those of the bytes that are served.

    Raises `ArtifactNotFound` (also for another project's, and for one that is missing or expired) and
    `ArtifactNotReady` while it is being stored.
    """
    row = await store.one(session, actor, trial_id, artifact_id) if is_id(artifact_id, "art") else None
    if row is None or row.state != ArtifactState.AVAILABLE:
        raise ArtifactNotFound
    if row.upload_state == UploadState.PENDING:
        raise ArtifactNotReady
    if row.upload_state != UploadState.UPLOADED:
        raise ArtifactNotFound
    return row


async def window(
    session: AsyncSession,
    actor: Principal,
    blobs: BlobStore,
    trial_id: str,
    artifact_id: str,
    *,
    offset: int = 0,
    max_bytes: int = DEFAULT_WINDOW,
) -> dict[str, Any]:
    """Returns a bounded window of a text artifact (contract, section 10); any other file has a null `text`.

    An `offset` inside a character moves back to its beginning; the answer's `offset` says where the text begins.
    Raises `InvalidRequest` for bounds out of range, and what `get` raises.
    """
    if not 1 <= max_bytes <= MAX_WINDOW:
        raise invalid_window("max_bytes", f"must be between 1 and {MAX_WINDOW}")
    row = await get(session, actor, trial_id, artifact_id)
    assert row.sha256 is not None
    assert row.size is not None
    if not 0 <= offset <= row.size:
        raise invalid_window("offset", f"must be between 0 and the size, {row.size}")
    about = {
        "artifact_id": row.id,
        "name": row.name,
        "media_type": row.media_type,
        "size": row.size,
        "sha256": row.sha256,
    }
    start = max(0, offset - MARGIN)
    try:
        head = await blobs.read_range(row.sha256, 0, min(row.size, HEAD_BYTES))
        if not is_text(head):
            nothing = {"offset": offset, "bytes": 0, "next_offset": None, "eof": True}
            return {**about, **nothing, "text": None, "replaced_bytes": 0}
        end = min(row.size, offset + max_bytes + MARGIN)
        data = await blobs.read_range(row.sha256, start, end - start)
    except BlobMissing:
        raise ArtifactNotFound from None
    found = cut(data, start, offset, max_bytes)
    at_end = found.end >= row.size
    return {
        **about,
        "offset": found.offset,
        "bytes": found.end - found.offset,
        "next_offset": None if at_end else found.end,
        "eof": at_end,
        "text": found.text,
        "replaced_bytes": found.replaced_bytes,
    }
