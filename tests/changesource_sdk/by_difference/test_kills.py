"""SIGKILL before every statement on the digest file: in a snapshot, in a poll, and in an acknowledgement.

Each time a forked process does the step and kills itself before its nth statement; the next process must lead a
consumer to the upstream's rows, without a new snapshot where the log had one.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from changesource_sdk.by_difference import digest_file
from service_kit import sqlite as files
from tests.changesource_sdk.by_difference.shelf import Pipeline

MOST_STATEMENTS = 60


def killed_at(statement: int, step: Callable[[], object]) -> bool:
    """Whether the step, in a process of its own, was killed before its nth statement; False if it has fewer."""
    process = multiprocessing.get_context("fork").Process(target=_run, args=(statement, step))
    process.start()
    process.join(60)
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def _run(statement: int, step: Callable[[], object]) -> None:
    left = statement

    def count(_: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = files.connect(*arguments, **options)
        connection.set_trace_callback(count)
        return connection

    vars(digest_file)["connect"] = connect
    step()


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    pipeline = Pipeline(tmp_path)
    for id in range(1, 30):
        pipeline.upstream.put(id, f"text {id}")
    return pipeline


def write(pipeline: Pipeline, number: int) -> None:
    pipeline.upstream.put(1, f"version {number}")
    pipeline.upstream.put(100 + number, "new")
    pipeline.upstream.rows["note"].pop(99 + number, None)


def test_a_poll_can_be_killed_anywhere(pipeline: Pipeline) -> None:
    pipeline.snapshot()
    for number in range(1, MOST_STATEMENTS):
        write(pipeline, number)
        was_killed = killed_at(number, pipeline.poll)
        pipeline.restart()
        pipeline.sync()
        pipeline.check()
        if not was_killed:
            assert number > 10
            break
    else:
        raise AssertionError("a poll has more statements than were tried")
    assert pipeline.log.snapshots == 1


def test_an_acknowledgement_can_be_killed_anywhere(pipeline: Pipeline) -> None:
    pipeline.snapshot()
    for number in range(1, MOST_STATEMENTS):
        write(pipeline, number)
        pipeline.sync(acknowledge=False)
        was_killed = killed_at(number, lambda: pipeline.adapter.acknowledge(pipeline.log.position))
        pipeline.restart()
        write(pipeline, number + 1)
        pipeline.sync(acknowledge=False)
        pipeline.check()
        if not was_killed:
            assert number > 5
            break
    else:
        raise AssertionError("an acknowledgement has more statements than were tried")
    assert pipeline.log.snapshots == 1


def test_a_snapshot_can_be_killed_anywhere_and_leaves_no_folder(pipeline: Pipeline) -> None:
    for number in range(1, MOST_STATEMENTS):
        if not killed_at(number, pipeline.snapshot):
            assert number > 10
            break
    else:
        raise AssertionError("a snapshot has more statements than were tried")
    pipeline.snapshot()
    pipeline.sync()
    pipeline.check()
    assert len(list(pipeline.state.iterdir())) == 1
