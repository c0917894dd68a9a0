"""Models of an installation: who serves them, and what they cost.

Three sources at start: keys of well-known providers in the environment, `models.toml` and the folder `scripts` of the
data directory. All of them are read once; a change needs a restart, because a running Job keeps its prices.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from tollbar.gateway import modelsfile, offers
from tollbar.gateway.books import version_of
from tollbar.gateway.errors import (
    InvalidModelName,
    InvalidModelsFile,
    ProviderNotFound,
    ScriptNotFound,
    UnsupportedProvider,
)
from tollbar.gateway.modelsfile import ModelsFile
from tollbar.gateway.offers import Offer
from tollbar.gateway.owntable import OwnTable
from tollbar.gateway.prices import PriceBook
from tollbar.gateway.providers import Provider, Providers, from_environment
from tollbar.gateway.scripts import Scripts, read_scripts
from tollbar.jobs.models import ModelNotServed
from tollbar.kit.clock import Clock
from tollbar.vault.redactor import MIN_LENGTH, Redactor
from tollbar.vault.service import Vault

MODELS_FILE: Final = "models.toml"
SCRIPTS_FOLDER: Final = "scripts"


@dataclass(frozen=True)
class Models:
    """What an installation knows of models: the same in every process that reads the same sources."""

    providers: Providers
    scripts: Scripts
    book: PriceBook
    vault: Vault
    clock: Clock

    @property
    def prices(self) -> str:
        """Returns the version of the own prices, which a Job that begins now keeps."""
        return version_of(self.book)

    async def offer(self, session: AsyncSession, workspace_id: str, name: str) -> Offer:
        """Returns how `provider:model` is served for a workspace; raises `ModelNotServed`."""
        try:
            # The first one reads the price data.
            found = await asyncio.to_thread(
                offers.offer, name, self.book, self.providers, self.scripts, self.clock.now()
            )
        except (InvalidModelName, ProviderNotFound, ScriptNotFound, UnsupportedProvider) as error:
            raise ModelNotServed(name, error.message, error.hint) from error
        wanted = self.providers.get(found.provider).secret.vault_name
        if wanted is not None and await self.vault.use(session, workspace_id, wanted) is None:
            raise ModelNotServed(name, f"the vault has no secret {wanted}.", f"Write it: tollbar vault set {wanted}")
        return found


def read_models(data_dir: Path, vault: Vault, clock: Clock, environ: Mapping[str, str] = os.environ) -> Models:
    """Reads what an installation knows of models, and teaches the redactor the keys among it.

    Raises `InvalidModelsFile`, `InvalidPrice`, `InvalidScript`, each naming the place.
    """
    providers, prices = read_sources(data_dir, environ)
    for provider in providers.records.values():
        _learn(vault.redactor, provider)
    return Models(providers, read_scripts(data_dir / SCRIPTS_FOLDER), PriceBook(prices), vault, clock)


def read_sources(data_dir: Path, environ: Mapping[str, str] = os.environ) -> tuple[Providers, tuple[OwnTable, ...]]:
    """Returns the providers of the environment and of `models.toml`, and the prices of the file.

    Raises `InvalidModelsFile`, `InvalidPrice`.
    """
    file = _file(data_dir / MODELS_FILE, environ)
    return Providers.of([*from_environment(environ), *file.providers]), file.prices


def _file(path: Path, environ: Mapping[str, str]) -> ModelsFile:
    try:
        return modelsfile.read(path.read_text("utf-8"), environ)
    except FileNotFoundError:
        return ModelsFile((), ())
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidModelsFile("the file", f"cannot be read: {error}") from None


def _learn(redactor: Redactor, provider: Provider) -> None:
    """Checks what of a record lies outside of it, and teaches the redactor its key."""
    if provider.ca_file is not None:
        try:
            ssl.create_default_context(cafile=provider.ca_file)
        except OSError as error:
            raise InvalidModelsFile(f"provider {provider.id}.ca_file", f"cannot be read: {error}") from None
    if provider.secret.value is None:
        return
    value = provider.secret.value.get_secret_value()
    if len(value) < MIN_LENGTH:
        raise InvalidModelsFile(
            f"provider {provider.id}.secret",
            f"is shorter than {MIN_LENGTH} characters: logs could not hide it",
        )
    redactor.add(f"key of {provider.id}", value)
