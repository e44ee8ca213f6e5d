"""Schema changes and rows from several sessions at once, while the reader is restarted at any point of the stream.

Tables are created, filled, changed, emptied and dropped as fast as the server takes it, so rows are read ahead of the
stream again and again, and half of what is read is out of date. In the end the mirror must be what a new snapshot is.
Knobs: `FAULT_SEED` repeats the statements (not their interleaving), `FAULT_ROUNDS` sets the length.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from adapters.postgres.settings import PostgresSettings
from tests.adapters.postgres.following import Follower
from tests.support.peers.postgres_server import PostgresServer

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

SEED = int(os.environ.get("FAULT_SEED") or random.randrange(1 << 32))
ROUNDS = int(os.environ.get("FAULT_ROUNDS") or 30)
SESSIONS = 3


class Session(threading.Thread):
    """One application with a table of its own and one that all share."""

    def __init__(self, url: str, number: int) -> None:
        super().__init__()
        self._url = url
        self._random = random.Random(f"{SEED}/{number}")
        self._table = f"own_{number}"
        self._counter = number * 1_000_000

    def run(self) -> None:
        with psycopg.connect(self._url) as db:
            for _ in range(ROUNDS * 4):
                try:
                    for statement in self._statements():
                        db.execute(statement.encode())
                    db.commit()
                except psycopg.Error:
                    # Another session was there first, or the statement does not suit the table as it is now.
                    db.rollback()

    def _statements(self) -> Iterator[str]:
        for _ in range(self._random.choice([1, 1, 2, 5])):
            yield self._schema_change() if self._random.random() < 0.3 else self._row_change()

    def _row_change(self) -> str:
        self._counter += 1
        table = self._random.choice([self._table, "shared"])
        some = self._random.randrange(7)
        return self._random.choice(
            [
                f"INSERT INTO {table} (id, n) SELECT {self._counter * 10} + i, i FROM generate_series(1, 5) i",
                f"INSERT INTO {table} (id, n) SELECT {self._counter * 10} + i, i FROM generate_series(1, 5) i",
                f"UPDATE {table} SET n = n + 1 WHERE id % 7 = {some}",
                f"UPDATE {table} SET id = -id WHERE id % 7 = {some}",
                f"DELETE FROM {table} WHERE id % 7 = {some}",
            ]
        )

    def _schema_change(self) -> str:
        table = self._random.choice([self._table, self._table, "shared"])
        column = f"c{self._random.randrange(3)}"
        return self._random.choice(
            [
                f"CREATE TABLE {self._table} (id int PRIMARY KEY, n int)",
                f"CREATE TABLE {self._table} (id int PRIMARY KEY, n int)",
                f"DROP TABLE {self._table}",
                f"ALTER TABLE {table} ADD COLUMN {column} int DEFAULT {self._counter}",
                f"ALTER TABLE {table} ADD COLUMN {column} text DEFAULT clock_timestamp()::text",
                f"ALTER TABLE {table} DROP COLUMN {column}",
                f"ALTER TABLE {table} RENAME COLUMN {column} TO c{self._random.randrange(3)}",
                f"ALTER TABLE {table} ALTER COLUMN n TYPE bigint USING n * 2",
                f"ALTER TABLE {table} ALTER COLUMN n TYPE numeric",
                f"CREATE INDEX {table}_i{self._random.randrange(2)} ON {table} (n)",
                f"DROP INDEX {table}_i{self._random.randrange(2)}",
                f"TRUNCATE {table}",
            ]
        )


def test_a_mirror_survives_a_storm_of_schema_changes(tmp_path: Path) -> None:
    print(f"FAULT_SEED={SEED} FAULT_ROUNDS={ROUNDS}")
    hand = random.Random(SEED)
    with PostgresServer(wal_level="logical", synchronous_commit="on") as server:
        url = server.create_database("storm")
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("CREATE TABLE shared (id int PRIMARY KEY, n int)")
        follower = Follower(PostgresSettings.parse(url), tmp_path)
        sessions = [Session(url, number) for number in range(SESSIONS)]
        for session in sessions:
            session.start()
        restarts = 0
        while any(session.is_alive() for session in sessions):
            follower.read_some(hand.randrange(1, 20))
            if hand.random() < 0.3:
                follower.restart()
                restarts += 1
        for session in sessions:
            session.join()
        follower.catch_up()
        follower.settle()
        follower.assert_same()
        print(f"{len(follower.seen)} transactions, {restarts} restarts")
        assert restarts > 0
        follower.close()
