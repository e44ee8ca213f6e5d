"""What a child logs, its parent tells: the form one writes is the form the other reads."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator

import pytest

from changesource_cli.serving.child_output import ChildOutput
from changesource_sdk.observe.relayed import relay_to_standard_error
from service_kit import logs


@pytest.fixture
def restored() -> Iterator[None]:
    everything, own = logging.getLogger(), logging.getLogger(logs.LOGGER_NAME)
    before = everything.handlers[:], everything.level, own.handlers[:], own.level, own.propagate
    yield
    everything.handlers[:], everything.level, own.handlers[:], own.level, own.propagate = before


@pytest.mark.usefixtures("restored")
def test_a_child_s_records_keep_their_level_text_and_fields(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, shown = io.StringIO(), logging.getLogger().handlers[:]
    monkeypatch.setattr(sys, "stderr", written)
    relay_to_standard_error()
    logs.event(logs.logger("sqlite"), logging.WARNING, "not synced", column="raw", why="no such type")
    logs.event(logs.logger("runner"), logging.INFO, "trying again", delay=0.1)
    logging.getLogger("some.library").warning("%d tries left", 3)
    logging.getLogger("authors.own").info("read %d pages", 2)
    logging.getLogger("kafka.conn").info("nobody needs this")
    logging.getLogger("authors.own").debug("not at this level")
    logging.getLogger().handlers[:] = shown
    logging.getLogger(logs.LOGGER_NAME).propagate = True
    output = ChildOutput()
    for line in written.getvalue().splitlines():
        output.take(line)
    assert [(record.levelname, record.getMessage(), record.fields) for record in caplog.records] == [  # type: ignore[attr-defined]
        ("WARNING", "not synced", {"column": "raw", "why": "no such type", "source": "sqlite"}),
        ("INFO", "trying again", {"delay": 0.1, "source": "runner"}),
        ("WARNING", "3 tries left", {"source": "some.library"}),
        ("INFO", "read 2 pages", {"source": "authors.own"}),
    ]
