"""A replica made by the code under test: an initial load, then transactions, all from protocol messages."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reference_cache.replica.change_log import LoggedChange, changes_between
from reference_cache.replica.replica import open_replica
from reference_cache.replica.schema import read_schema
from reference_cache.replica.stored_catalog import Origin
from reference_cache.replica.writing.initial_load import load_new
from reference_cache.replica.writing.writer import ReplicaWriter
from reference_cache.replicator.row_frames import RowFrames
from tests.reference_cache.sources import snapshot
from tests.support.fakes.tiny_source import Message

ORIGIN = Origin("zero")


class Filled:
    """A replica and its writer."""

    def __init__(self, path: Path, messages: list[Message]) -> None:
        self.path = path
        self.frames = RowFrames()
        load = load_new(path, ORIGIN)
        load.begin(messages[0][2]["commitWatermark"], messages[0][1].get("json", "p"))
        self.frames.apply_all([json.dumps(message).encode() for message in messages[1:-1]], load)
        self.writer: ReplicaWriter = load.finish()

    def commit(self, version: str, *messages: Message, json_mode: str = "p") -> None:
        """Apply a transaction and make it durable."""
        self.writer.begin(version, "s" if json_mode == "s" else "p")
        self.frames.apply_all([json.dumps(message).encode() for message in messages], self.writer)
        self.writer.commit()
        self.writer.flush()

    def connect(self) -> sqlite3.Connection:
        return open_replica(self.path).connect()

    def rows(self, sql: str = "SELECT id, name FROM item ORDER BY id") -> list[tuple[object, ...]]:
        return self.connect().execute(sql).fetchall()

    def changes(self, after: str, upto: str) -> list[LoggedChange]:
        connection = self.connect()
        return list(changes_between(connection, read_schema(connection), after, upto))

    def log(self, after: str, upto: str) -> list[tuple[object, ...]]:
        """The changes in a form that can be compared."""
        return [(version, table, *_plain(change)) for version, table, change in self.changes(after, upto)]


def _plain(change: object) -> tuple[object, ...]:
    rows = [getattr(change, name).row for name in ("node", "old_node") if hasattr(change, name)]
    return (type(change).__name__, *rows)


MakeReplica = Callable[..., Filled]


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[MakeReplica]:
    """Makes a replica whose initial sync, version 01, has the table item(id, name, …) and these messages."""
    made: list[Filled] = []

    def make(*messages: Message, columns: dict[str, str] | None = None) -> Filled:
        made.append(Filled(tmp_path / "replica.db", snapshot("01", *messages, columns=columns)))
        return made[-1]

    yield make
    for each in made:
        each.writer.close()
