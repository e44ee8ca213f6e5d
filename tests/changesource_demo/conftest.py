"""A demo that runs, for tests to look at its page."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.support.child_process import ChildProcess
from tests.support.peers.browser import running_browser

SECONDS = 240.0
"""Until the page is there, or all is gone, on a machine that has other things to do."""


@dataclass(frozen=True, slots=True)
class RunningDemo:
    """A demo's process and the address of its page."""

    process: ChildProcess
    url: str


def start_demo(folder: Path, runner: str) -> RunningDemo:
    """Start a demo and wait for its page."""
    command = [sys.executable, "-m", "changesource_cli", "demo", "--json", "--runner", runner]
    process = ChildProcess([*command, "--keep", str(folder)])
    try:
        line = process.lines[process.wait_for_line('"event": "page"', seconds=SECONDS) - 1]
    except AssertionError:
        process.kill()
        raise
    return RunningDemo(process, str(json.loads(line)["url"]))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    """One demo for the tests of a module, with the runner that starts fastest."""
    running = start_demo(tmp_path_factory.mktemp("demo"), "inline")
    try:
        yield running
    finally:
        running.process.stop(seconds=SECONDS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    """One Chromium for the tests of a module, which run on one event loop."""
    async with running_browser() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def browser(chromium: Browser) -> AsyncIterator[Browser]:
    """That Chromium, with no page open."""
    yield chromium
    for context in chromium.contexts:
        await context.close()
