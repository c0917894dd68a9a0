"""`tollbar providers`: what a check finds out about a provider, in every dialect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.gateway.world import MODELS, REAL_KEY, StandIn, providers_at, script

from tollbar.gateway.prices import PriceBook
from tollbar.gateway.probing import OUTPUT_TOKENS, Probed, probe
from tollbar.gateway.relay import Relays, upstream_client

MODEL_OF = {provider: model for model, provider in MODELS.items()}


async def probed(turn: str, provider_id: str, book: PriceBook) -> list[Probed]:
    async with StandIn(script(turn)).serving() as provider, upstream_client() as client:
        record = providers_at(provider.url).get(provider_id)
        found = await probe(Relays(client), client, record, MODEL_OF[provider_id], REAL_KEY, book)
        assert len(provider.asked) == len(found) == 2 * len(record.dialects)
        return found


@pytest.mark.parametrize("provider_id", ["openai", "anthropic", "google"])
async def test_a_provider_that_reports_its_usage_and_keeps_the_limit_can_be_metered(
    provider_id: str, book: PriceBook
) -> None:
    found = await probed(
        '[[case.turn]]\ntext = "one two three"\nusage = { input = 20, output = 16 }\n', provider_id, book
    )
    assert {(one.http_status, one.usage, one.limit_held, one.problem) for one in found} == {(200, True, True, None)}
    assert OUTPUT_TOKENS == 16


async def test_what_cannot_be_metered_is_told_apart(book: PriceBook) -> None:
    text = '[[case.turn]]\ntext = "one"\n'
    silent = await probed(f"{text}fault = {{ no_usage = true }}\n", "openai", book)
    assert {(one.usage, one.limit_held) for one in silent} == {(False, None)}
    wordy = await probed(f"{text}fault = {{ usage_over = true }}\n", "openai", book)
    assert {(one.usage, one.limit_held) for one in wordy} == {(True, False)}
    busy = await probed(f"{text}fault = {{ status = 529 }}\n", "openai", book)
    assert {(one.http_status, one.usage) for one in busy} == {(529, None)}
    assert all(one.problem for one in busy)


def test_the_command_lists_providers_without_their_keys_and_names_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text(
        '[[provider]]\nid = "acme"\nkind = "openai-compatible"\n'
        'base_url = "https://llm.example.com/v1"\nsecret = "ACME"\n'
    )
    environment = {**os.environ, "OPENAI_API_KEY": "sk-canary-0123456789"}

    def tollbar(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tollbar", "providers", *words, "--data-dir", str(tmp_path), "--json"],
            capture_output=True, text=True, check=False, env=environment, timeout=60,
        )  # fmt: skip

    listed = tollbar("list")
    found = {item["id"]: item["secret"] for item in json.loads(listed.stdout)["items"]}
    assert (found["acme"], found["openai"]) == ("vault: ACME", "a key of the environment")
    assert "canary" not in listed.stdout + listed.stderr
    missing = tollbar("check", "nobody", "--model", "m")
    assert (missing.returncode, json.loads(missing.stdout)["code"]) == (1, "PROVIDER_NOT_FOUND")
