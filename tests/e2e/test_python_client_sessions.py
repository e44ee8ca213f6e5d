"""Python clients that come and go on our cache end up with what the store has; and the page about them is right."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.fences import blocks, execute
from tests.support.client_sessions import SessionWorld, play, session_world

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
    asyncio.run(asyncio.wait_for(names["main"](world.url, "token", file), 60))
    printed = capsys.readouterr().out
    assert "refused: not allowed by the server" in printed
    assert re.search(r"complete \[.*'written in Python'", printed)
    asyncio.run(asyncio.wait_for(names["offline"](world.url, "token", file), 60))
    assert world.store.query("SELECT title FROM issues WHERE id = 'x1'") == [("changed on the way",)]
