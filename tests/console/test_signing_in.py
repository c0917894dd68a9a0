"""Signing a browser in and out: links that work once, cookies that end, forms from our own pages alone."""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
from tests.console.conftest import OWN, new_link, signed_in, submit
from tests.mcp.world import AUTOMATION, ORIGIN, http_client

HOUR_S = 3600
DAY_S = 24 * HOUR_S


def token_of(page: str) -> str:
    found = re.search(r'name="token" value="([0-9a-f]{64})"', page)
    assert found is not None
    return found[1]


async def test_looking_at_a_link_uses_nothing_up_and_pressing_its_button_does(world, visitor):
    link = await new_link(world)
    for _ in range(3):
        page = await visitor.get("/sign-in", params={"link": link})
        assert page.status_code == 200
        assert f'name="link" value="{link}"' in page.text
        assert "set-cookie" not in page.headers
    assert (await visitor.head("/sign-in", params={"link": link})).status_code == 200
    answer = await visitor.post("/sign-in", data={"link": link}, headers=OWN)
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs")
    assert (await visitor.get("/jobs")).status_code == 200


async def test_a_spent_link_says_how_to_get_a_new_one(world, visitor):
    link = await new_link(world)
    await visitor.post("/sign-in", data={"link": link}, headers=OWN)
    again = await visitor.post("/sign-in", data={"link": link}, headers=OWN)
    for answer in (again, await visitor.get("/sign-in", params={"link": link}), await visitor.get("/sign-in")):
        assert answer.status_code == 410
        assert "tollbar sign-in" in answer.text
        assert "<button" not in re.sub(r"<header>.*?</header>", "", answer.text, flags=re.DOTALL)
        assert "set-cookie" not in answer.headers


async def test_a_link_ends_after_ten_minutes(world, clock, visitor):
    link = await new_link(world)
    clock.advance(599)
    assert (await visitor.get("/sign-in", params={"link": link})).status_code == 200
    clock.advance(1)
    assert (await visitor.get("/sign-in", params={"link": link})).status_code == 410
    assert (await visitor.post("/sign-in", data={"link": link}, headers=OWN)).status_code == 410


@pytest.mark.parametrize("link", ["", "tbl_unknown", "\0", "%ff", "<b>", "x" * 5000])
async def test_a_link_that_nobody_made_is_spent(visitor, link):
    assert (await visitor.get("/sign-in", params={"link": link[:2000]})).status_code == 410
    assert (await visitor.post("/sign-in", data={"link": link}, headers=OWN)).status_code == 410


async def test_the_cookie_is_kept_from_scripts_and_other_sites(world, visitor):
    answer = await visitor.post("/sign-in", data={"link": await new_link(world)}, headers=OWN)
    name_value, *flags = [part.strip() for part in answer.headers["set-cookie"].split(";")]
    assert name_value.startswith("tollbar_session=tbs_")
    assert {flag.lower() for flag in flags} == {"httponly", "path=/", "samesite=lax", f"max-age={14 * DAY_S}"}


async def test_on_https_the_cookie_is_bound_to_the_host_and_to_https(world):
    secure = replace(world, origin="https://tollbar.example")
    async with http_client(secure.app(), headers={"Host": "tollbar.example"}) as visitor:
        own = {"Origin": "https://tollbar.example"}
        answer = await visitor.post("/sign-in", data={"link": await new_link(world)}, headers=own)
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-tollbar_session=tbs_")
    assert {"secure", "httponly", "path=/", "samesite=lax"} <= {part.strip().lower() for part in cookie.split(";")}
    assert "domain=" not in cookie.lower()
    assert answer.headers["strict-transport-security"] == "max-age=31536000"


FOREIGN = [{}, {"Origin": "null"}, {"Origin": "https://elsewhere.example"}, {"Origin": f"{ORIGIN}.elsewhere.example"},
           {"Origin": urlsplit(ORIGIN).netloc}, {"Origin": ""}]  # fmt: skip


@pytest.mark.parametrize("headers", FOREIGN)
async def test_a_form_of_another_site_changes_nothing(world, app, headers):
    link = await new_link(world)
    async with http_client(app) as visitor:
        assert (await visitor.post("/sign-in", data={"link": link}, headers=headers)).status_code == 403
        assert (await visitor.get("/sign-in", params={"link": link})).status_code == 200, "the link is not used up"
    job_id = await submit(world)
    async with signed_in(world, app) as browser:
        token = token_of((await browser.get("/jobs")).text)
        for path in ("/sign-out", f"/jobs/{job_id}/stop"):
            assert (await browser.post(path, data={"token": token}, headers=headers)).status_code == 403
        page = await browser.get(f"/jobs/{job_id}")
    assert page.status_code == 200, "still signed in"
    assert "pending" in page.text


@pytest.mark.parametrize("token", [None, "", "0" * 64, "é"])
async def test_a_form_without_the_token_of_its_session_changes_nothing(world, app, browser, token):
    job_id = await submit(world)
    form = {} if token is None else {"token": token}
    assert (await browser.post("/sign-out", data=form, headers=OWN)).status_code == 403
    assert (await browser.post(f"/jobs/{job_id}/stop", data=form, headers=OWN)).status_code == 403
    async with signed_in(world, app) as another:
        foreign = {"token": token_of((await another.get("/jobs")).text)}
    assert (await browser.post(f"/jobs/{job_id}/stop", data=foreign, headers=OWN)).status_code == 403
    assert "pending" in (await browser.get(f"/jobs/{job_id}")).text


async def test_signing_out_ends_the_session_and_not_only_the_cookie(world, app, browser):
    cookie = browser.cookies["tollbar_session"]
    token = token_of((await browser.get("/jobs")).text)
    answer = await browser.post("/sign-out", data={"token": token}, headers=OWN)
    assert answer.status_code == 200
    assert "signed out" in answer.text
    assert "max-age=0" in answer.headers["set-cookie"].lower()
    async with http_client(app, cookies={"tollbar_session": cookie}) as thief:
        assert (await thief.get("/jobs")).status_code == 401


async def test_a_session_ends_after_twelve_idle_hours_and_use_keeps_it_alive(clock, browser):
    for _ in range(3):
        clock.advance(12 * HOUR_S - 1)
        assert (await browser.get("/jobs")).status_code == 200
    clock.advance(12 * HOUR_S)
    answer = await browser.get("/jobs")
    assert answer.status_code == 401
    assert "tollbar sign-in" in answer.text


async def test_a_session_ends_after_fourteen_days_however_busy_it_is(clock, browser):
    for _ in range(14 * 3 - 1):
        clock.advance(DAY_S / 3)
        assert (await browser.get("/jobs")).status_code == 200
    clock.advance(DAY_S / 3)
    assert (await browser.get("/jobs")).status_code == 401


async def test_pages_need_a_session_and_a_key_is_none(world, app, visitor):
    job_id = await submit(world)
    for path in ("/jobs", f"/jobs/{job_id}", "/jobs?cursor=x"):
        for cookie in ({}, {"tollbar_session": ""}, {"tollbar_session": "tbs_wrong"}):
            async with http_client(app, cookies=cookie) as client:
                answer = await client.get(path)
            assert answer.status_code == 401
            assert job_id not in answer.text
    async with http_client(app, world.secrets[AUTOMATION]) as program:
        assert (await program.get("/jobs")).status_code == 401
        assert (await program.post(f"/jobs/{job_id}/stop", headers=OWN)).status_code == 401


async def test_a_session_is_no_key(browser):
    assert (await browser.get("/v1/me")).status_code == 401
    assert (await browser.post("/v1/mcp", json={})).status_code == 401
