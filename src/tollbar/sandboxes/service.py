"""Runners: those that every installation has, and how a reference is frozen to a revision."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.access.principal import Capability, Principal
from tollbar.kit.clock import Clock
from tollbar.kit.money import PUSD_PER_USD
from tollbar.kit.paging import Page, PageRequest
from tollbar.sandboxes import store
from tollbar.sandboxes.base import host_digest
from tollbar.sandboxes.errors import RunnerNotFound
from tollbar.sandboxes.interface import Limits, Network
from tollbar.sandboxes.runners import DEFAULT_LABEL, DEFAULT_NAMESPACE, Description, Runner, parse_reference
from tollbar.sandboxes.tables import RunnerRevisionRow

METERED_VCPU_SECOND_PUSD: Final = PUSD_PER_USD // 100
METERED_GIB_SECOND_PUSD: Final = PUSD_PER_USD // 1000
_DOCKER: Final = "docker"
_OWN_IMAGE: Final = "image"
"""The base of a backend in which every task has the image that it names."""
_MAXIMA: Final = Limits(cpus=8.0, memory_mb=32768, disk_mb=51200, pids=4096, nofile=65536)


def seeded(backend: str, base: str) -> dict[str, Description]:
    """Returns the descriptions of the seeded runners by short name.

    `base` is free, `metered` the same at a price, and `docker` free on the images that tasks themselves name.
    """
    free = Description(
        backend=backend,
        base=base,
        limits=Limits(),
        maxima=_MAXIMA,
        vcpu_second_pusd=0,
        gib_second_pusd=0,
        demanded_level="watched",
        allow_base_substitution=True,
        default_network=Network.NONE,
        networks=(Network.NONE, Network.GATEWAY, Network.ALLOWLIST),
        capabilities={"regrade": True, "seal": True},
        declared_free=True,
    )
    metered = replace(
        free,
        vcpu_second_pusd=METERED_VCPU_SECOND_PUSD,
        gib_second_pusd=METERED_GIB_SECOND_PUSD,
        declared_free=False,
    )
    found = {"base": free, "metered": metered, "docker": replace(free, backend=_DOCKER)}
    return {name: _on_own_images(each) if each.backend == _DOCKER else each for name, each in found.items()}


def _on_own_images(runner: Description) -> Description:
    return replace(runner, base=_OWN_IMAGE, demanded_level="none", allow_base_substitution=False)


async def seed(
    session: AsyncSession,
    clock: Clock,
    *,
    backend: str | Callable[[], Awaitable[str]] = "bwrap",
    base: str | None = None,
) -> None:
    """Creates `envhub/base@main`, `envhub/metered@main` and `envhub/docker@main` where they are missing.

    What exists stays as it is. `envhub/docker` is there whether an engine answers here or not: the worker that will
    run a Job on it may be another machine's.

    `backend` is the best one of the machine (or what finds it, called only where something is missing) and `base` its
    base with digest (this host's when it is not given). Safe to repeat, and beside another server that does the same.
    """
    names = ("base", "metered", "docker")
    missing = [name for name in names if await store.labelled(session, DEFAULT_NAMESPACE, name, DEFAULT_LABEL) is None]
    if not missing:
        return
    best = backend if isinstance(backend, str) else await backend()
    descriptions = seeded(best, base or f"host@{await asyncio.to_thread(host_digest)}")
    for name in missing:
        await store.add(session, DEFAULT_NAMESPACE, name, DEFAULT_LABEL, descriptions[name], clock.now())


async def resolve(session: AsyncSession, text: object) -> Runner:
    """Returns the revision that a reference names now: `namespace/name@revision`, or less of it.

    Raises `InvalidRunner` (422) for a form that no runner can have, `RunnerNotFound` (404) when there is none.
    """
    reference = parse_reference(text)
    row = await store.find(session, reference)
    if row is None:
        raise RunnerNotFound(str(reference))
    return _runner(row)


async def list_page(session: AsyncSession, actor: Principal, page: PageRequest) -> Page[dict[str, Any]]:
    """Returns a page of GET /runners, by name. Raises `AccessDenied`."""
    actor.require(Capability.RUNNERS_READ)
    rows = page.page(await store.page(session, page), lambda row: [row.namespace, row.name, row.revision])
    return Page([_runner(row).wire() for row in rows.items], rows.next_cursor)


def _runner(row: RunnerRevisionRow) -> Runner:
    return Runner(
        row.namespace, row.name, row.revision, row.source_ref, row.visibility, row.description, row.created_at
    )
