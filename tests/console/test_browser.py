"""The pages in a real browser: nothing is refused by their own policy, nothing is asked of another host, all fits.

Where `TOLLBAR_SCREENSHOTS` names a folder, pictures of the pages are written there.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.console.browser import Page, chromium, tab
from tests.console.conftest import new_link, submit
from tests.console.sample import TASKS, sample
from tests.http.served import served
from tests.mcp.worked import worked
from tests.mcp.world import World

pytestmark = pytest.mark.skipif(
    chromium() is None, reason="Chromium is not installed (Debian and Ubuntu: apt-get install chromium)"
)

WIDTHS = (390, 1280)
FITS = "document.documentElement.scrollWidth <= innerWidth && innerWidth"
SCROLLS = "(box => [box.scrollWidth > box.clientWidth, box.clientWidth <= innerWidth])(document.querySelector('.wide'))"


@dataclass(frozen=True)
class Visit:
    """A browser that is signed in."""

    page: Page
    url: str

    async def open(self, path: str) -> None:
        await self.page.open(f"{self.url}{path}")

    async def text(self, selector: str = "main") -> str:
        return await self.page.evaluate(f"document.querySelector('{selector}').innerText")

    async def pictures(self, name: str) -> None:
        """Looks at the page at every width in both colour schemes; at 320 pixels it still fits."""
        folder = os.environ.get("TOLLBAR_SCREENSHOTS")
        for width in WIDTHS:
            for dark in (False, True):
                await self.page.look(width, dark=dark)
                assert await self.page.evaluate(FITS) == width, (name, width)
                if folder:
                    await self.page.picture(Path(folder) / f"{name}-{width}-{'dark' if dark else 'light'}.png")
        await self.page.look(320)
        assert await self.page.evaluate(FITS) == 320, name
        await self.page.look(1280)


@asynccontextmanager
async def visit(world: World, profile: Path) -> AsyncIterator[Visit]:
    """Signs a browser in by the button of a link; afterwards nothing may have been refused or asked elsewhere."""
    async with served(world.app()) as port, tab(profile) as page:
        url = f"http://127.0.0.1:{port}"
        await page.look(1280)
        await page.open(f"{url}/sign-in?link={await new_link(world)}")
        visit = Visit(page, url)
        await visit.pictures("sign-in")
        await page.press("main button")
        assert await page.evaluate("location.pathname") == "/jobs"
        yield visit
        assert page.errors == []
        assert [asked for asked in page.requests if not asked.startswith((f"{url}/", "data:"))] == []


async def test_the_pages_fit_every_screen_and_ask_nothing_of_another_host(world, tmp_path):
    async with visit(world, tmp_path / "profile") as at:
        await at.pictures("jobs-empty")
        made = await sample(world)
        for name, path in {
            "jobs": "/jobs",
            "job-done": f"/jobs/{made.done}",
            "job-capped": f"/jobs/{made.capped}",
            "job-gaps": f"/jobs/{made.gaps}",
            "job-running": f"/jobs/{made.running}",
            "settings": "/settings",
        }.items():
            await at.open(path)
            await at.pictures(name)
        await at.open(f"/jobs/{made.done}")
        await at.page.look(390)
        assert await at.page.evaluate(SCROLLS) == [True, True], "the wide matrix scrolls inside its own box"
        height = await at.page.evaluate("getComputedStyle(document.querySelector('.bar')).height")
        assert height.startswith("9."), "the style sheet applies"


async def test_a_cell_of_the_matrix_is_heard_with_task_attempt_state_and_reward(world, tmp_path):
    async with visit(world, tmp_path / "profile") as at:
        made = await sample(world)
        await at.open(f"/jobs/{made.gaps}")
        heard = await at.page.names("cell") + await at.page.names("gridcell")
        assert "greeting, attempt 3: succeeded, reward 0.25, does not pass" in heard
        assert "repair-script, attempt 2: failed, no reward: SANDBOX_OOM" in heard
        rows = await at.page.names("rowheader")
        assert [name for name in rows if name in TASKS] == list(TASKS)
        await at.open("/jobs")
        await at.page.look(390)
        assert "State" in await at.page.names("columnheader"), "the list is a table on a phone, too"


async def test_a_job_is_stopped_and_a_browser_signed_out_by_its_own_forms(world, tmp_path):
    async with visit(world, tmp_path / "profile") as at:
        job_id = await submit(world, attempts=2)
        await worked(world, job_id, {"greeting": [1.0, "pending"]})
        await at.open(f"/jobs/{job_id}")
        assert not await at.page.evaluate("document.querySelector('.stop').open"), "stopping takes two steps"
        await at.page.evaluate("document.querySelector('.stop summary').click()")
        await at.page.press(".stop button")
        assert await at.page.evaluate("location.pathname") == f"/jobs/{job_id}"
        assert "A person stopped this Job" in await at.text()
        await at.page.press("header button")
        assert "This browser is signed out" in await at.text()
        await at.pictures("signed-out")


async def test_the_keyboard_reaches_the_content_and_the_scrolling_box(world, tmp_path):
    async with visit(world, tmp_path / "profile") as at:
        made = await sample(world)
        await at.open(f"/jobs/{made.done}")
        await at.page.key("Tab")
        assert await at.page.evaluate("document.activeElement.className") == "skip"
        assert await at.page.evaluate("document.activeElement.getBoundingClientRect().left") > 0, "it shows itself"
        await at.page.key("Enter")
        assert await at.page.evaluate("document.activeElement.id") == "main"
        reached = []
        for _ in range(4):
            await at.page.key("Tab")
            reached.append(await at.page.evaluate("document.activeElement.className || document.activeElement.tagName"))
        assert "wide" in reached
        assert await at.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
