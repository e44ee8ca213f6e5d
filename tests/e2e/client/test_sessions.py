"""Python clients that come and go on our cache end up with what the store has; and the page about them is right."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reference_cache.client import Client
from tests.docs.fences import blocks, execute
from tests.support.apps.client_sessions import SessionWorld, play, session_world
from tests.support.apps.tracker import TRACKER, mutators
from tests.support.child_process import ChildProcess
from tests.support.tools import REPOSITORY

SESSIONS = 20


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionWorld]:
    with session_world(tmp_path_factory.mktemp("sessions")) as made:
        yield made


@pytest.mark.parametrize("seed", range(SESSIONS))
def test_clients_that_come_and_go_end_up_with_what_the_store_has(world: SessionWorld, seed: int) -> None:
    asyncio.run(play(world, seed))
    assert world.cache.process.running


def test_the_examples_on_the_page_run(world: SessionWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for text in blocks("docs/how-to/python-client.md", "python"):
        execute(text, names)
    file = tmp_path / "client.db"
    asyncio.run(asyncio.wait_for(names["main"](world.url, "ann-token", file), 120))
    printed = capsys.readouterr().out
    assert "refused: not allowed by the server" in printed
    assert re.search(r"complete \[.*'written in Python'", printed)
    asyncio.run(asyncio.wait_for(names["offline"](world.url, "ann-token", file), 120))
    assert world.store.query("SELECT title FROM issues WHERE id = 'x1'") == [("changed on the way",)]


def queued_by_a_killed_process(world: SessionWorld, file: Path, line: str) -> list[str]:
    """The issues that a client had queued by the time it was killed, offline or in the middle of pushing them."""
    command = [sys.executable, "-m", "tests.support.apps.busy_client", world.url, str(file), line, line]
    process = ChildProcess(command, cwd=REPOSITORY)
    try:
        process.wait_for_line(f"queued {line}20")
    finally:
        process.kill()
    return [said.removeprefix("queued ") for said in process.lines if said.startswith("queued ")]


async def pushed_by_the_next_client(world: SessionWorld, file: Path) -> None:
    async with (
        asyncio.timeout(120),
        Client(world.url, TRACKER, mutators=mutators, user_id="u", auth="u-token", store=file, offline=True) as client,
    ):
        assert client.queued
        client.connect()
        await client.drained()


def test_the_queue_of_a_client_that_was_killed_is_pushed_by_the_next_one(world: SessionWorld, tmp_path: Path) -> None:
    file = tmp_path / "client.db"
    queued = [*queued_by_a_killed_process(world, file, "offline"), *queued_by_a_killed_process(world, file, "online")]
    asyncio.run(pushed_by_the_next_client(world, file))
    stored = {id for (id,) in world.store.query("SELECT id FROM issues")}
    assert len(queued) >= 42
    assert set(queued) <= stored
