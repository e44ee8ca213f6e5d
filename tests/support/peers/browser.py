"""A real Chromium, headless, driven over its DevTools protocol.

Place in the flow: tests of pages open them here as a person would, look at what is shown, click and type. Contract:
every page has its own profile of cookies and storage; what a page logs as an error, and exceptions nobody caught, are
kept in `Page.errors`; leaving the context ends the browser and everything it started.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from tests.support.child_process import ChildProcess
from tests.support.tools import chromium

SECONDS = 90.0
"""How long a condition on a page may take; a busy machine is slow."""

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--no-first-run",
    "--no-proxy-server",
    "--remote-debugging-port=0",
)
_UNTIL = """new Promise((resolve, reject) => {
  const end = performance.now() + %(milliseconds)d;
  const look = () => {
    let answer;
    try { answer = (%(condition)s); } catch (error) { answer = null; }
    if (answer) resolve(answer);
    else if (performance.now() > end) reject(new Error("waited in vain for: " + %(text)s));
    else setTimeout(look, 30);
  };
  look();
})"""
_KEYS = {
    "Tab": (9, ""),
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    " ": (32, " "),
    "ArrowDown": (40, ""),
    "ArrowUp": (38, ""),
}


class BrowserError(AssertionError):
    """The page, or the browser, says no."""


@dataclass(frozen=True, slots=True)
class Screen:
    """What a page is shown on."""

    width: int = 1280
    height: int = 900
    dark: bool = False
    mobile: bool = False


class Page:
    """One tab. Invariant: `errors` holds every uncaught exception and logged error since the tab was opened."""

    def __init__(self, devtools: _DevTools, session: str) -> None:
        self.errors: list[str] = []
        self._devtools = devtools
        self._session = session

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited if it is a promise; it must be JSON."""
        asked = {"expression": expression, "awaitPromise": True, "returnByValue": True, "userGesture": True}
        answer = await self.send("Runtime.evaluate", **asked)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    async def until(self, condition: str, *, seconds: float = SECONDS) -> Any:
        """Wait until a JavaScript expression is truthy, and return its value; one that throws is not true yet."""
        text = json.dumps(condition)
        asked = _UNTIL % {"condition": condition, "milliseconds": seconds * 1000, "text": text}
        try:
            return await self.evaluate(asked)
        except BrowserError as error:
            raise BrowserError(f"{error}\nerrors of the page: {self.errors}") from None

    async def text(self, selector: str) -> str:
        """What an element shows; waits until it is there."""
        return str(await self.until(f"[document.querySelector({json.dumps(selector)})].map(e => e && e.innerText)[0]"))

    async def click(self, selector: str) -> None:
        """Press the middle of an element with the mouse, once it is there and scrolled into view."""
        place = f"""(() => {{
          const element = document.querySelector({json.dumps(selector)});
          element.scrollIntoView({{block: "center", behavior: "instant"}});
          const box = element.getBoundingClientRect();
          return !element.disabled && box.width && [box.x + box.width / 2, box.y + box.height / 2];
        }})()"""
        x, y = await self.until(place)
        for kind in ("mousePressed", "mouseReleased"):
            await self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def fill(self, selector: str, text: str) -> None:
        """Replace what a field holds, as if typed."""
        found = f"document.querySelector({json.dumps(selector)})"
        await self.until(f"{found} && !{found}.disabled")
        await self.evaluate(f"{found}.focus(), {found}.select()")
        await self.send("Input.insertText", text=text)

    async def press(self, key: str) -> None:
        """Press and release a key, by its DOM name."""
        code, text = _KEYS[key]
        pressed = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code}
        await self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **pressed)
        await self.send("Input.dispatchKeyEvent", type="keyUp", **pressed)

    async def go(self, url: str) -> None:
        """Load an address and wait until the document is there."""
        answer = await self.send("Page.navigate", url=url)
        if answer.get("errorText"):
            raise BrowserError(f"{url}: {answer['errorText']}")
        await self.until(f"location.href.startsWith({json.dumps(url)}) && document.readyState === 'complete'")

    async def reload(self) -> None:
        """Load the page again, keeping its storage."""
        await self.evaluate("window.stale = true")
        await self.send("Page.reload")
        await self.until("!window.stale && document.readyState === 'complete'")

    async def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write what is seen, or the whole page, as PNG."""
        answer = await self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(answer["data"]))

    async def close(self) -> None:
        """Close the tab."""
        await self.send("Page.close")

    async def send(self, method: str, **params: object) -> dict[str, Any]:
        """Any other command of the DevTools protocol, to this tab."""
        for _ in range(100):
            try:
                return await self._devtools.send(method, params, self._session)
            except BrowserError as error:
                # A page that is just being replaced by the next has no place to evaluate in.
                if "context" not in str(error) or method != "Runtime.evaluate":
                    raise
                await asyncio.sleep(0.05)
        raise BrowserError(f"{method} found no page to run in")

    def note(self, event: str, params: dict[str, Any]) -> None:
        """Keep what went wrong on the page."""
        if event == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(str(details.get("exception", {}).get("description") or details["text"]))
        elif event == "Runtime.consoleAPICalled" and params["type"] == "error":
            self.errors.append(" ".join(str(each.get("value", each.get("description"))) for each in params["args"]))


class Browser:
    """A running Chromium."""

    def __init__(self, devtools: _DevTools) -> None:
        self._devtools = devtools
        self._profiles: list[str] = []

    async def open(self, url: str, screen: Screen | None = None) -> Page:
        """A new tab with a profile of its own, showing the address."""
        profile = (await self._devtools.send("Target.createBrowserContext", {}))["browserContextId"]
        self._profiles.append(profile)
        asked = {"url": "about:blank", "browserContextId": profile}
        target = (await self._devtools.send("Target.createTarget", asked))["targetId"]
        attached = await self._devtools.send("Target.attachToTarget", {"targetId": target, "flatten": True})
        page = Page(self._devtools, attached["sessionId"])
        self._devtools.pages[attached["sessionId"]] = page
        for domain in ("Page", "Runtime"):
            await page.send(f"{domain}.enable")
        await _show_on(page, screen or Screen())
        await page.go(url)
        return page

    async def close_pages(self) -> None:
        """Close every page, and forget its profile."""
        for profile in self._profiles:
            await self._devtools.send("Target.disposeBrowserContext", {"browserContextId": profile})
        self._profiles.clear()


async def _show_on(page: Page, screen: Screen) -> None:
    size = {"width": screen.width, "height": screen.height, "mobile": screen.mobile}
    await page.send("Emulation.setDeviceMetricsOverride", deviceScaleFactor=2 if screen.mobile else 1, **size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if screen.dark else "light"}
    await page.send("Emulation.setEmulatedMedia", features=[scheme])


@asynccontextmanager
async def running_browser() -> AsyncIterator[Browser]:
    """A Chromium of one's own."""
    with started_chromium() as address:
        async with connected_browser(address) as browser:
            yield browser


@contextmanager
def started_chromium() -> Iterator[str]:
    """A Chromium with a fresh home, for several tests to use one after the other; where it listens."""
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as home:
        # Without a home and a session bus of its own it looks for the user's.
        env = {"HOME": home, "DBUS_SESSION_BUS_ADDRESS": "disabled:", "LANG": os.environ.get("LANG", "C.UTF-8")}
        command = [chromium(), *_FLAGS, f"--user-data-dir={home}/profile", "about:blank"]
        with ChildProcess(command, env=env) as process:
            said = process.lines[process.wait_for_line("DevTools listening on ", seconds=SECONDS) - 1]
            yield said.split(" on ")[1].strip()


@asynccontextmanager
async def connected_browser(address: str) -> AsyncIterator[Browser]:
    """A Chromium that runs already; the pages opened here are closed at the end."""
    async with connect(address, max_size=None, proxy=None, open_timeout=SECONDS) as socket:
        devtools = _DevTools(socket)
        reading = asyncio.create_task(devtools.read())
        browser = Browser(devtools)
        try:
            yield browser
            await browser.close_pages()
        finally:
            reading.cancel()


@dataclass(slots=True)
class _DevTools:
    """Commands and their answers by number, over one socket. Invariant: every command gets an answer or an error."""

    socket: ClientConnection
    pages: dict[str, Page] = field(default_factory=dict)
    _waiting: dict[int, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=lambda: count(1))

    async def send(self, method: str, params: dict[str, Any], session: str | None = None) -> dict[str, Any]:
        number = next(self._numbers)
        answered = self._waiting[number] = asyncio.get_running_loop().create_future()
        asked = {"id": number, "method": method, "params": params}
        await self.socket.send(json.dumps(asked | ({"sessionId": session} if session else {})))
        answer = await answered
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        return answer.get("result", {})

    async def read(self) -> None:
        async for text in self.socket:
            message = json.loads(text)
            if "id" in message:
                self._answer(self._waiting.pop(message["id"]), message)
            elif message.get("sessionId") in self.pages:
                self.pages[message["sessionId"]].note(message["method"], message["params"])
        for waiting in self._waiting.values():
            self._answer(waiting, {"error": {"message": "the browser has ended"}})

    def _answer(self, waiting: asyncio.Future[dict[str, Any]], message: dict[str, Any]) -> None:
        if not waiting.done():  # whoever asked may have gone
            waiting.set_result(message)
