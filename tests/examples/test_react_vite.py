"""The official client in a React app, in a real browser, through our cache and our application server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page

from changesource_sdk.testing.faults import Link
from tests.docs.fences import ROOT, block, ran
from tests.support.child_process import ChildProcess
from tests.support.peers.browser import open_page, running_browser, until
from tests.support.ports import free_port
from tests.support.tools import NPM_MANIFEST, node, node_modules

EXAMPLE = ROOT / "examples" / "react-vite"
SECONDS = 180.0

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def copied(folder: Path) -> Path:
    """The example with the packages the tests have already."""
    made = folder / "react-vite"
    shutil.copytree(EXAMPLE, made, ignore=shutil.ignore_patterns("node_modules", "dist", "__pycache__"))
    (made / "node_modules").symlink_to(node_modules())
    return made


def started(folder: Path, proxy: Link, port: int) -> ChildProcess:
    """The example as its README starts it, its cache behind a proxy that can be cut."""
    printed = block("examples/react-vite/README.md", "python run.py")
    python, *arguments = printed.split()
    assert python == "python"
    options = ["--port", str(port), "--cache-url", f"http://127.0.0.1:{proxy.port}"]
    path = os.pathsep.join([str(node().parent), os.environ["PATH"]])
    env = {"PYTHONPATH": str(ROOT), "PATH": path}
    process = ChildProcess([sys.executable, *arguments, *options], cwd=copied(folder), env=env)
    ran(printed)
    return process


async def opened(browser: Browser, url: str) -> Page:
    """The list, once it is in sync."""
    page = await open_page(browser, url)
    await until(page, is_settled())
    return page


def is_settled() -> str:
    """A condition on the page: connected, complete, and every write confirmed or refused."""
    wanted = {"state": "connected", "result": "complete", "waiting": "0"}
    found = "document.querySelector('#state').dataset"
    return " && ".join(f"{found}.{name} === {json.dumps(value)}" for name, value in wanted.items())


def shows(*titles: str) -> str:
    """A condition on the page: the list is exactly this."""
    found = "[...document.querySelectorAll('#todos li')].map(each => each.innerText.trim())"
    return f"JSON.stringify({found}) === JSON.stringify({json.dumps(titles)})"


async def add(page: Page, title: str) -> None:
    await page.fill("#title", title)
    await page.keyboard.press("Enter")


async def test_writes_are_optimistic_confirmed_refused_and_kept_while_offline(tmp_path: Path) -> None:
    port, nowhere = free_port(), free_port()
    with Link("127.0.0.1", nowhere) as proxy, started(tmp_path, proxy, port) as example:
        line = example.lines[example.wait_for_line("cache: running on port ", seconds=SECONDS) - 1]
        up = proxy.target = ("127.0.0.1", int(line.rsplit(" ", 1)[1]))
        example.wait_for_line("page: ", seconds=SECONDS)
        async with running_browser() as browser:
            page = await opened(browser, f"http://127.0.0.1:{port}/")
            await add(page, "Buy milk")
            await until(page, f"{shows('Buy milk')} && {is_settled()}")

            await add(page, " ")
            await until(page, "document.querySelector('#refusal').innerText === 'Say what is to be done'")
            await until(page, f"{shows('Buy milk')} && {is_settled()}")

            proxy.target = ("127.0.0.1", nowhere)
            proxy.cut()
            await until(page, "document.querySelector('#state').dataset.state !== 'connected'")
            await add(page, "Written offline")
            waiting = "document.querySelector('#state').dataset.waiting === '1'"
            await until(page, f"{shows('Buy milk', 'Written offline')} && {waiting}")
            proxy.target = up
            await until(page, f"{shows('Buy milk', 'Written offline')} && {is_settled()}")

            another = await opened(browser, f"http://127.0.0.1:{port}/")
            await until(another, shows("Buy milk", "Written offline"))
            await another.click("#todos li:first-child input")
            await until(page, "document.querySelector('#todos li:first-child input').checked")
        example.send(signal.SIGINT)
        assert example.wait(SECONDS) == 0
        assert example.tree() == []


def test_the_example_pins_the_versions_the_tests_have() -> None:
    wanted = json.loads((EXAMPLE / "package.json").read_text())["dependencies"]
    tested = json.loads((NPM_MANIFEST / "package.json").read_text())["dependencies"]
    assert wanted == {name: tested[name] for name in wanted}
