"""Rules of artifacts: recorded once, listed by name, read whole or in bounded windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Principal
from tollbar.artifacts import store
from tollbar.artifacts.blobs import BlobStore
from tollbar.artifacts.errors import ArtifactNotFound, ArtifactNotReady, BlobMissing, invalid_window
from tollbar.artifacts.media import HEAD_BYTES, is_text, media_type
from tollbar.artifacts.schemas import NewArtifact, artifact_object
from tollbar.artifacts.tables import ArtifactRow
from tollbar.kit.clock import Clock
from tollbar.kit.ids import is_id, new_id
from tollbar.kit.paging import Page, PageRequest, page_request
from tollbar.kit.text import window as text_window

DEFAULT_WINDOW: Final = 16_384
MAX_WINDOW: Final = 32_768


async def record(
    session: AsyncSession,
    blobs: BlobStore,
    clock: Clock,
    items: Sequence[NewArtifact],
    *,
    trial_id: str,
    project_id: str,
    try_no: int,
) -> None:
    """Records what a try of a Trial left, in the caller's transaction; what an older try left is dropped."""
    await store.drop_older_tries(session, trial_id, try_no)
    rows = [
        {
            "id": new_id("art"),
            "trial_id": trial_id,
            "project_id": project_id,
            "try_no": try_no,
            "name": item.name,
            "kind": item.kind.value,
            "media_type": await _media_type(blobs, item),
            "size": item.size,
            "sha256": item.sha256,
            "state": "missing" if item.sha256 is None else "available",
            "upload_state": "failed" if item.sha256 is None else "uploaded",
            "created_at": clock.now(),
        }
        for item in items
    ]
    await store.add(session, rows)


async def _media_type(blobs: BlobStore, item: NewArtifact) -> str | None:
    if item.sha256 is None or item.size is None:
        return None
    return media_type(await blobs.read_range(item.sha256, 0, min(item.size, HEAD_BYTES)))


async def list_page(session: AsyncSession, actor: Principal, trial_id: str, page: PageRequest) -> Page[dict[str, Any]]:
    """Returns a page of a Trial's artifacts by name; the caller has checked that the Trial is the project's."""
    rows = await store.page(session, actor, trial_id, page)
    cut = page.page(rows, lambda row: [row.name])
    return Page([artifact_object(row) for row in cut.items], cut.next_cursor)


def page_scope(actor: Principal, trial_id: str) -> dict[str, str]:
    """Names the list of a Trial's artifacts, so that the first page of a result is continued by the list."""
    return {"route": "artifacts", "project": actor.project_id, "trial": trial_id}


async def first_page(session: AsyncSession, actor: Principal, trial_id: str) -> Page[dict[str, Any]]:
    """Returns the first page, as a Trial's result holds it."""
    return await list_page(session, actor, trial_id, page_request(None, None, scope=page_scope(actor, trial_id)))


async def get(session: AsyncSession, actor: Principal, trial_id: str, artifact_id: str) -> ArtifactRow:
    """Returns an artifact that has content; raises `ArtifactNotFound`, `ArtifactNotReady`."""
    row = await store.one(session, actor, trial_id, artifact_id) if is_id(artifact_id, "art") else None
    if row is None or row.state != "available":
        raise ArtifactNotFound
    if row.upload_state != "uploaded" or row.sha256 is None:
        raise ArtifactNotReady
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
    """Returns a bounded window of a text artifact, never cut inside a character; other files have no `text`."""
    if offset < 0:
        raise invalid_window("offset", "must not be negative")
    if not 1 <= max_bytes <= MAX_WINDOW:
        raise invalid_window("max_bytes", f"must be between 1 and {MAX_WINDOW}")
    row = await get(session, actor, trial_id, artifact_id)
    assert row.sha256 is not None
    assert row.size is not None
    about = {
        "artifact_id": row.id,
        "name": row.name,
        "media_type": row.media_type,
        "size": row.size,
        "sha256": row.sha256,
        "offset": offset,
    }
    try:
        head = await blobs.read_range(row.sha256, 0, min(row.size, HEAD_BYTES))
        if not is_text(head):
            return {**about, "bytes": 0, "next_offset": None, "eof": False, "text": None, "replaced_bytes": 0}
        length = max(0, min(max(max_bytes, 4), row.size - offset))
        data = await blobs.read_range(row.sha256, offset, length)
    except BlobMissing:
        raise ArtifactNotFound from None
    found = text_window(data, at_end=offset + len(data) >= row.size)
    end = offset + found.size
    return {
        **about,
        "bytes": found.size,
        "next_offset": None if end >= row.size else end,
        "eof": end >= row.size,
        "text": found.text,
        "replaced_bytes": found.replaced,
    }
