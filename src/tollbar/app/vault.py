"""`tollbar vault`: secrets, written and removed by whoever owns the data directory; only their names are shown."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from tollbar.app.logs import configure_logs

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

    from tollbar.access.principal import Principal
    from tollbar.kit.clock import Clock
    from tollbar.settings import Settings
    from tollbar.vault.service import SecretView, Vault

DataDir = Annotated[Path | None, Parameter(help="Data directory of the installation.")]
AsJson = Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON document.")]
_NOT_FOUND: Final = 3


def list_secrets(*, data_dir: DataDir = None, json_: AsJson = False) -> int:
    """List the secrets by name.

    Example: tollbar vault list
    """

    async def work(at: _Desk) -> list[SecretView]:
        return await at.vault.list(at.session, at.actor)

    code, secrets = _at_desk(work, data_dir, as_json=json_)
    if secrets is not None:
        if json_:
            print(json.dumps({"items": [_object(secret) for secret in secrets]}))
        else:
            for secret in secrets:
                print(f"{secret.name}  version {secret.version}  since {secret.created_at:%Y-%m-%d %H:%M} UTC")
    return code


def set_secret(
    name: str,
    /,
    *,
    host: Annotated[
        list[str] | None, Parameter(help="Where it may be sent; may be repeated. Absent: to the host of its use.")
    ] = None,
    data_dir: DataDir = None,
    json_: AsJson = False,
) -> int:
    """Write a secret, or its next version. The value is read from standard input, without the line's end.

    It can be used and removed, and is never shown again.

    Example: tollbar vault set OPENAI_API_KEY < key.txt
    """
    value = _typed(name) if sys.stdin.isatty() else _read()

    async def work(at: _Desk) -> SecretView:
        return await at.vault.put(at.session, at.actor, name, value, clock=at.clock, hosts=host or ())

    code, secret = _at_desk(work, data_dir, as_json=json_)
    if secret is not None:
        print(json.dumps(_object(secret)) if json_ else f"{secret.name}: version {secret.version} is written")
    return code


def remove_secret(name: str, /, *, data_dir: DataDir = None, json_: AsJson = False) -> int:
    """Remove every version of a secret; what uses it now loses it.

    Example: tollbar vault remove OPENAI_API_KEY
    """

    async def work(at: _Desk) -> bool:
        return await at.vault.revoke(at.session, at.actor, name, clock=at.clock)

    code, removed = _at_desk(work, data_dir, as_json=json_)
    if removed is None:
        return code
    if json_:
        print(json.dumps({"name": name, "removed": removed}))
    elif removed:
        print(f"{name}: removed")
    else:
        print(f"error: there is no secret {name}\n  the names: tollbar vault list", file=sys.stderr)
    return 0 if removed else _NOT_FOUND


@dataclass(frozen=True)
class _Desk:
    """What one command works with: an open vault in one transaction."""

    vault: Vault
    session: AsyncSession
    actor: Principal
    clock: Clock


def _at_desk(
    work: Callable[[_Desk], Awaitable[Any]], data_dir: Path | None, *, as_json: bool
) -> tuple[int, Any | None]:
    """Returns 0 and the work's result, or an exit code and None, and has printed why."""
    configure_logs()
    # Heavy imports wait for a command that needs them, and for logs that are set up.
    from tollbar.app.process import EXIT_USAGE, refused, settings_of
    from tollbar.kit.errors import TollbarError
    from tollbar.vault.errors import InvalidSecret

    settings = settings_of({"data_dir": data_dir})
    if settings is None:
        return EXIT_USAGE, None
    try:
        return 0, asyncio.run(_work(work, settings))
    except InvalidSecret as error:
        refused(error, as_json=as_json)
        return EXIT_USAGE, None
    except TollbarError as error:
        return refused(error, as_json=as_json), None


async def _work(work: Callable[[_Desk], Awaitable[Any]], settings: Settings) -> Any:
    async with desk(settings) as at:
        return await work(at)


@asynccontextmanager
async def desk(settings: Settings) -> AsyncGenerator[_Desk]:
    """Yields an open vault in one transaction; the embedded database is started when no server runs it now."""
    from tollbar.access import service as access
    from tollbar.app.installation import database_url, open_vault
    from tollbar.db import migrate
    from tollbar.db.session import open_database
    from tollbar.kit.clock import SystemClock

    async with AsyncExitStack() as stack:
        url = await database_url(stack, settings)
        await asyncio.to_thread(migrate.require_current, url)
        database, clock = open_database(url, pool_size=1), SystemClock()
        stack.push_async_callback(database.close)
        vault = await open_vault(settings, database)
        async with database.transaction() as session:
            actor = await access.ensure_first_project(session, clock)
            yield _Desk(vault, session, actor, clock)


def _read() -> str:
    return sys.stdin.buffer.read().decode("utf-8", "surrogateescape").removesuffix("\n").removesuffix("\r")


def _typed(name: str) -> str:
    from getpass import getpass

    return getpass(f"{name} (it is not shown): ")


def _object(secret: SecretView) -> dict[str, Any]:
    return {
        "name": secret.name,
        "version": secret.version,
        "hosts": list(secret.hosts),
        "shared": secret.shared,
        "created_at": secret.created_at.isoformat(),
    }
