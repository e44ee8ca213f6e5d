"""What a child logs, its parent tells: the form one writes is the form the other reads."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from changesource_sdk.cli.child_output import ChildOutput
from changesource_sdk.observe import logs


@pytest.fixture
def restored() -> Iterator[None]:
    root = logging.getLogger(logs.LOGGER_NAME)
    before = (root.handlers[:], root.level, root.propagate)
    yield
    root.handlers[:], root.level, root.propagate = before


@pytest.mark.usefixtures("restored")
def test_a_child_s_events_keep_their_level_text_and_fields(caplog: pytest.LogCaptureFixture) -> None:
    written = io.StringIO()
    logs.configure(form="relay", level="info", stream=written)
    logs.event(logs.logger("adapters.sqlite"), logging.WARNING, "not synced", column="raw", why="no such type")
    logs.event(logs.logger("runner"), logging.INFO, "trying again", delay=0.1)
    root = logging.getLogger(logs.LOGGER_NAME)
    root.handlers[:], root.propagate = [], True
    output = ChildOutput()
    for line in written.getvalue().splitlines():
        output.take(line)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", 'not synced column=raw why="no such type"'),
        ("INFO", "trying again delay=0.100"),
    ]
