"""A headless Chromium, driven by its DevTools protocol: no driver, no download of a browser."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import websockets
from websockets.asyncio.client import ClientConnection

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
_START_S = 30.0
_STEP_S = 15.0


def chromium() -> str | None:
    """Returns the path of the browser; None where there is none."""
    return shutil.which(os.environ.get("TOLLBAR_CHROMIUM") or "chromium")


class Page:
    """One tab and what it said: messages of its console, and every address that it asked for."""

    def __init__(self, connection: _Connection, session_id: str) -> None:
        self._connection = connection
        self._session_id = session_id
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._loaded = asyncio.Event()

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends one command of the protocol to the tab and returns its result."""
        return await self._connection.send(method, params, self._session_id)

    async def open(self, url: str) -> None:
        """Goes to an address and waits until it is loaded."""
        self._loaded.clear()
        await self.send("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), _STEP_S)

    async def press(self, selector: str) -> None:
        """Presses a button that leads to another page, and waits for it."""
        self._loaded.clear()
        await self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")
        await asyncio.wait_for(self._loaded.wait(), _STEP_S)

    async def key(self, name: str) -> None:
        """Presses and releases a key, such as `Tab` or `Enter`."""
        code = {"Tab": 9, "Enter": 13}[name]
        facts = {"key": name, "code": name, "windowsVirtualKeyCode": code}
        text = {"text": "\r"} if name == "Enter" else {}
        await self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **facts, **text)
        await self.send("Input.dispatchKeyEvent", type="keyUp", **facts)

    async def look(self, width: int, *, dark: bool = False, height: int = 800) -> None:
        """Sets the width of the window (CSS pixels) and the colour scheme."""
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.send("Emulation.setEmulatedMedia", features=[scheme])

    async def evaluate(self, expression: str) -> Any:
        """Returns the JSON value of an expression in the page."""
        found = await self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def names(self, role: str) -> list[str]:
        """Returns the names, as a screen reader says them, of all elements of that role."""
        tree = await self.send("Accessibility.getFullAXTree")
        return [
            node.get("name", {}).get("value", "")
            for node in tree["nodes"]
            if not node.get("ignored") and node.get("role", {}).get("value") == role
        ]

    async def picture(self, path: Path) -> None:
        """Writes a picture of the whole page."""
        size = (await self.send("Page.getLayoutMetrics"))["cssContentSize"]
        width = await self.evaluate("innerWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": size["height"], "scale": 1}
        taken = await self.send("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        await asyncio.to_thread(_write, path, base64.b64decode(taken["data"]))

    def hear(self, method: str, params: dict[str, Any]) -> None:
        """Notes what the tab says by itself."""
        match method:
            case "Page.loadEventFired":
                self._loaded.set()
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Log.entryAdded" if params["entry"]["level"] in {"error", "warning"}:
                self.errors.append(params["entry"]["text"])
            case "Runtime.consoleAPICalled" if params["type"] in {"error", "warning", "assert"}:
                self.errors.append(str(params["args"]))
            case "Runtime.exceptionThrown":
                self.errors.append(str(params["exceptionDetails"]))
            case _:
                pass


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


class _Connection:
    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.pages: dict[str, Page] = {}

    async def send(self, method: str, params: dict[str, Any], session_id: str | None = None) -> dict[str, Any]:
        number = len(self._waiting)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session_id is not None:
            message["sessionId"] = session_id
        await self._socket.send(json.dumps(message))
        answer = await asyncio.wait_for(self._waiting[number], _STEP_S)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    async def listen(self) -> None:
        async for text in self._socket:
            message = json.loads(text)
            if "id" in message:
                self._waiting[message["id"]].set_result(message)
            elif message.get("sessionId") in self.pages:
                self.pages[message["sessionId"]].hear(message["method"], message["params"])


@asynccontextmanager
async def tab(profile: Path) -> AsyncIterator[Page]:
    """Starts a browser with a fresh profile folder and yields its tab; the browser ends with the block."""
    program = chromium()
    assert program is not None
    process = await asyncio.create_subprocess_exec(
        program, *_FLAGS, f"--user-data-dir={profile}", stderr=asyncio.subprocess.PIPE, limit=1 << 20
    )
    try:
        async with websockets.connect(await _address(process), max_size=None) as socket:
            connection = _Connection(socket)
            listening = [asyncio.create_task(connection.listen()), asyncio.create_task(_drain(process))]
            try:
                yield await _new_page(connection)
            finally:
                for task in listening:
                    task.cancel()
                await asyncio.gather(*listening, return_exceptions=True)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    """Returns where the browser listens; it says so on its standard error."""
    assert process.stderr is not None
    said: list[str] = []
    async with asyncio.timeout(_START_S):
        while raw := await process.stderr.readline():
            line = raw.decode(errors="replace").strip()
            said.append(line)
            if line.startswith("DevTools listening on "):
                return line.removeprefix("DevTools listening on ")
    msg = f"the browser did not start: {said}"
    raise AssertionError(msg)


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Reads on, so that the browser never waits for a full pipe."""
    assert process.stderr is not None
    while await process.stderr.readline():
        pass


async def _new_page(connection: _Connection) -> Page:
    target = await connection.send("Target.createTarget", {"url": "about:blank"})
    attached = await connection.send("Target.attachToTarget", {"targetId": target["targetId"], "flatten": True})
    page = Page(connection, attached["sessionId"])
    connection.pages[attached["sessionId"]] = page
    for domain in ("Page", "Network", "Log", "Runtime", "Accessibility"):
        await page.send(f"{domain}.enable")
    return page
