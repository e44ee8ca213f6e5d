"""The system's Chromium, headless, driven by Playwright.

Every page has its own cookies and storage. Playwright's own browsers are never downloaded: the executable is the one
that `tests.support.tools` finds.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

from playwright.async_api import Browser, Page, async_playwright
from playwright.async_api import TimeoutError as PageTimeout

from tests.support.tools import chromium

SECONDS = 90.0
"""How long a page may take for one step; a busy machine is slow."""

_FLAGS = ("--disable-gpu", "--no-proxy-server")


@dataclass(frozen=True, slots=True)
class Screen:
    """What a page is shown on."""

    width: int = 1280
    height: int = 900
    dark: bool = False
    mobile: bool = False


@asynccontextmanager
async def running_browser() -> AsyncIterator[Browser]:
    """A Chromium that ends with the context, as does everything it started."""
    with TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as home:
        # Without a home and a session bus of its own it looks for the user's.
        env: dict[str, str | float | bool] = {**os.environ, "HOME": home, "DBUS_SESSION_BUS_ADDRESS": "disabled:"}
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=chromium(), args=_FLAGS, env=env, timeout=SECONDS * 1000
            )
            try:
                yield browser
            finally:
                await browser.close()


async def open_page(browser: Browser, url: str, screen: Screen | None = None) -> Page:
    """A new page with a profile of its own that has loaded the address."""
    screen = screen or Screen()
    context = await browser.new_context(
        viewport={"width": screen.width, "height": screen.height},
        device_scale_factor=2 if screen.mobile else 1,
        is_mobile=screen.mobile,
        color_scheme="dark" if screen.dark else "light",
    )
    context.set_default_timeout(SECONDS * 1000)
    page = await context.new_page()
    await page.goto(url)
    return page


async def until(page: Page, condition: str) -> Any:
    """Wait until a JavaScript expression is truthy and return its value; one that throws is not true yet.

    Raises `AssertionError` with the condition and the errors of the page after `SECONDS`.
    """
    guarded = f"() => {{ try {{ return ({condition}); }} catch {{ return null; }} }}"
    try:
        value = await page.wait_for_function(guarded, polling=30)
    except PageTimeout as error:
        raise AssertionError(f"{condition} is not true after {SECONDS:g} s; errors: {await errors_of(page)}") from error
    return await value.json_value()


async def errors_of(page: Page) -> list[str]:
    """Uncaught exceptions and what the page logged as an error, since it was opened.

    What Chromium logs on its own, such as a failed load, has no arguments and is left out.
    """
    thrown = [str(error) for error in await page.page_errors(filter="all")]
    logged = await page.console_messages(filter="all")
    return thrown + [message.text for message in logged if message.type == "error" and message.args]
