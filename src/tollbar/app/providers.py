"""`tollbar providers`: who serves models to a server that is started here, and what of their answers can be metered."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tollbar.app.logs import configure_logs

if TYPE_CHECKING:
    from tollbar.gateway.probing import Probed
    from tollbar.gateway.providers import Provider
    from tollbar.settings import Settings

DataDir = Annotated[Path | None, Parameter(help="Data directory of the installation.")]
AsJson = Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON document.")]
_WRONG = 1


def list_providers(*, data_dir: DataDir = None, json_: AsJson = False) -> int:
    """List the providers: of the keys in this environment, of models.toml, and the one of scripts.

    A server has those of the environment in which it was started.

    Example: tollbar providers list
    """
    configure_logs()
    from tollbar.app.models import read_sources
    from tollbar.app.process import EXIT_USAGE, refused, settings_of
    from tollbar.kit.errors import TollbarError

    settings = settings_of({"data_dir": data_dir})
    if settings is None:
        return EXIT_USAGE
    try:
        providers, _ = read_sources(settings.data_dir.expanduser())
    except TollbarError as error:
        return refused(error, as_json=json_)
    found = [_object(provider) for provider in providers.records.values()]
    if json_:
        print(json.dumps({"items": found}))
    else:
        for one in found:
            print("  ".join((one["id"], one["kind"], ",".join(one["dialects"]), one["base_url"], one["secret"])))
    return 0


def check_provider(name: str, /, *, model: str, data_dir: DataDir = None, json_: AsJson = False) -> int:
    """Ask a provider the smallest question in each of its dialects, plain and streamed. It costs a few tokens.

    Says whether usage came back (without it a call costs its worst case) and whether the output limit was obeyed.
    Exit code 1: one of them cannot be metered, or nobody could be asked.

    Example: tollbar providers check openai --model gpt-5-mini
    """
    configure_logs()
    from tollbar.app.process import EXIT_USAGE, refused, settings_of
    from tollbar.kit.errors import TollbarError

    settings = settings_of({"data_dir": data_dir})
    if settings is None:
        return EXIT_USAGE
    try:
        found = asyncio.run(_check(settings, name, model))
    except TollbarError as error:
        return refused(error, as_json=json_)
    if json_:
        print(json.dumps({"items": [asdict(one) for one in found]}))
    else:
        for one in found:
            print("  ".join((f"{one.dialect} {'streamed' if one.streamed else 'plain'}", _said(one))))
    return 0 if all(one.usage and one.limit_held for one in found) else _WRONG


async def _check(settings: Settings, name: str, model: str) -> list[Probed]:
    from tollbar.app.models import read_sources
    from tollbar.app.vault import desk
    from tollbar.gateway.errors import ProviderNotFound
    from tollbar.gateway.prices import PriceBook
    from tollbar.gateway.probing import probe
    from tollbar.gateway.relay import Relays, upstream_client

    providers, _ = read_sources(settings.data_dir.expanduser())
    provider = providers.get(name)
    if provider.is_scripted:
        raise ProviderNotFound(name, None)
    secret = None if provider.secret.value is None else provider.secret.value.get_secret_value()
    async with AsyncExitStack() as stack:
        wanted = provider.secret.vault_name
        if wanted is not None:
            at = await stack.enter_async_context(desk(settings))
            found = await at.vault.use(at.session, at.actor.workspace_id, wanted)
            secret = None if found is None else found.value
        client = await stack.enter_async_context(upstream_client(proxy=provider.proxy, ca_file=provider.ca_file))
        print(f"asking {provider.base_url} for {model} ...", file=sys.stderr, flush=True)
        return await probe(Relays(client), client, provider, model, secret, PriceBook())


def _object(provider: Provider) -> dict[str, Any]:
    secret = provider.secret
    value = "a key of the environment" if secret.value is not None else "no key"
    return {
        "id": provider.id,
        "kind": provider.traits.kind.value,
        "base_url": provider.base_url,
        "dialects": sorted(provider.dialects),
        "secret": value if secret.vault_name is None else f"vault: {secret.vault_name}",
        "source": provider.source,
    }


def _said(one: Probed) -> str:
    if one.problem is not None:
        return f"no answer: {one.http_status or ''} {one.problem}".strip()
    usage = "usage came back" if one.usage else "NO USAGE: a call costs its worst case"
    return usage if one.limit_held in {True, None} else f"{usage}; THE OUTPUT LIMIT WAS NOT OBEYED"
