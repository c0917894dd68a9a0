"""What every answer of the console carries, and what its files may not hold."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from sqlalchemy import text as sql
from tests.console.conftest import OWN, new_link, submit
from tests.console.test_signing_in import token_of
from tests.mcp.world import http_client

from tollbar.console.protection import CONTENT_POLICY

POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "font-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
    "base-uri": "'none'",
}
FOLDER = files("tollbar.console")


def test_the_policy_allows_nothing_inline_and_nothing_from_elsewhere():
    assert dict(part.strip().split(" ", 1) for part in CONTENT_POLICY.split(";")) == POLICY


async def test_every_answer_carries_the_headers(world, app, browser):
    job_id, link = await submit(world), await new_link(world)
    token = token_of((await browser.get("/jobs")).text)
    answers = [
        await browser.get(path)
        for path in (
            "/", "/jobs", f"/jobs/{job_id}", "/jobs/job_x", "/jobs?cursor=bad", "/nothing", f"/sign-in?link={link}",
            "/sign-in", "/static/console.css", "/static/icon.svg", "/static/nothing",
        )
    ]  # fmt: skip
    answers += [
        await browser.post("/sign-in", data={"link": link}),
        await browser.post("/sign-in", data={"link": link}, headers=OWN),
        await browser.post(f"/jobs/{job_id}/stop", headers=OWN),
        await browser.post("/sign-out", data={"token": token}, headers=OWN),
    ]
    async with http_client(app) as visitor:
        answers.append(await visitor.get("/jobs"))
    for answer in answers:
        headers = answer.headers
        assert headers["content-security-policy"] == CONTENT_POLICY, answer.url
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin", "no-referrer would hide the Origin of our own forms"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers
        assert "strict-transport-security" not in headers
        if headers.get("content-type", "").startswith("text/html"):
            assert headers["cache-control"] == "no-store"


async def test_pages_cannot_be_read_by_other_sites(browser):
    answer = await browser.get("/jobs", headers={"Origin": "https://elsewhere.example"})
    assert "access-control-allow-origin" not in answer.headers
    preflight = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "GET"}
    assert (await browser.options("/jobs", headers=preflight)).status_code == 405


async def test_another_host_gets_no_page(app):
    async with http_client(app, headers={"Host": "elsewhere.example"}) as visitor:
        assert (await visitor.get("/jobs")).status_code == 421


async def test_a_crash_is_a_page_with_an_id_and_nothing_of_what_happened(world, browser, log_lines):
    job_id = await submit(world)
    token = token_of((await browser.get(f"/jobs/{job_id}")).text)
    await _break(world)
    answer = await browser.post(f"/jobs/{job_id}/stop", data={"token": token}, headers=OWN)
    assert answer.status_code in {500, 503}
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"] == CONTENT_POLICY
    assert "Traceback" not in answer.text
    assert "psycopg" not in answer.text


async def test_a_form_that_is_too_large_is_read_as_an_empty_one(world, browser):
    answer = await browser.post("/sign-in", content=b"link=" + b"x" * 100_000, headers=OWN)
    assert answer.status_code == 410


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.joinpath("templates").iterdir()))
def test_templates_hold_no_code_no_style_and_no_foreign_address(name):
    text = FOLDER.joinpath("templates", name).read_text(encoding="utf-8")
    for forbidden in (
        r"<script", r"<style", r"\sstyle\s*=", r"\son[a-z]+\s*=", r"javascript:", r"\|\s*safe\b", r"autoescape",
        r"(src|href|action)\s*=\s*[\"'](https?:)?//", r"Markup",
    ):  # fmt: skip
        assert not re.search(forbidden, text, re.IGNORECASE), forbidden


def test_the_style_sheet_loads_nothing():
    text = FOLDER.joinpath("static", "console.css").read_text(encoding="utf-8")
    assert "@import" not in text
    assert "url(" not in text


def _luminance(colour: str) -> float:
    digits = colour.removeprefix("#")
    whole = digits if len(digits) == 6 else "".join(2 * digit for digit in digits)
    parts = [int(whole[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, two: str) -> float:
    low, high = sorted((_luminance(one), _luminance(two)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1])
def test_every_pair_of_colours_that_meets_can_be_read(theme):
    text = FOLDER.joinpath("static", "console.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root \{(.*?)\}", text, flags=re.DOTALL)
    colour = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]+)", blocks[theme]))
    pairs = [
        *((ink, ground) for ink in ("ink", "quiet", "link") for ground in ("ground", "raised", "soft")),
        *((name, ground) for name in ("good", "bad", "odd", "busy") for ground in (f"{name}-soft", "raised")),
        ("ink", "odd-soft"),
        ("on-link", "link"),
        ("on-link", "bad"),
    ]
    assert {pair: round(found, 2) for pair in pairs if (found := _contrast(*(colour[n] for n in pair))) < 4.5} == {}


async def _break(world) -> None:
    """Takes away what the next question needs, as a fault would."""
    async with world.database.transaction() as session:
        await session.execute(sql("ALTER TABLE job_task RENAME TO job_task_gone"))
