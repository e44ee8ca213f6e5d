"""The server goes and comes back: it is never kept from stopping, and nothing is lost or doubled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from adapters.postgres.opening import open_snapshot, prepare
from adapters.postgres.replication.slot import ensure_slot
from adapters.postgres.settings import PostgresSettings
from adapters.postgres.tail import PostgresTail
from changesource_sdk.adapter import Insert
from changesource_sdk.errors import AdapterError, ResyncRequired
from tests.support.peers.postgres_server import PostgresServer
from tests.support.waiting import until


class Reader:
    """Reads and acknowledges in a thread of its own, from where the last one ended, until the server is lost."""

    def __init__(self, settings: PostgresSettings, position: int) -> None:
        self.position = position
        self.rows: list[object] = []
        self.error: AdapterError | None = None
        self._stream = PostgresTail(settings)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            for transaction in self._stream.transactions(self.position):
                self.rows += [change.row["n"] for change in transaction.changes if isinstance(change, Insert)]
                assert isinstance(transaction.position, int)
                self.position = transaction.position
                self._stream.acknowledge(self.position)
        except AdapterError as error:
            self.error = error

    def end(self) -> None:
        self._stream.close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer(wal_level="logical", synchronous_commit="on") as made:
        yield made


def test_a_server_can_stop_and_be_killed_while_it_is_followed(server: PostgresServer) -> None:
    url = server.create_database("store")
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE TABLE t (n int PRIMARY KEY)")
    settings = PostgresSettings.parse(url)
    prepare(settings)
    snapshot, _ = open_snapshot(settings)
    snapshot.close()
    position = snapshot.lsn
    for number, leave in enumerate((server.stop, server.kill, server.stop)):
        reader = Reader(settings, position)
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("INSERT INTO t VALUES (%s)", (number,))
        position = _lost(reader, leave)
        assert reader.rows == [number]
        server.start_again()


def _lost(reader: Reader, leave: Callable[[], None]) -> int:
    """Let the server go once the reader has something; where the reader got to."""
    until(lambda: reader.rows, "the row")
    leave()
    until(lambda: reader.error, "the reader to notice")
    reader.end()
    return reader.position


def test_a_slot_that_the_server_gave_up_is_made_anew(server: PostgresServer) -> None:
    url = server.create_database("store")
    settings = PostgresSettings.parse(url)
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE TABLE t (n int PRIMARY KEY)")
        prepare(settings)
        snapshot, _ = open_snapshot(settings)
        snapshot.close()
        db.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
        db.execute("SELECT pg_reload_conf()")
        until(lambda: _is_given_up(db), "the server to give the slot up")
        with pytest.raises(ResyncRequired, match="thrown away changes"):
            next(PostgresTail(settings).transactions(snapshot.lsn))
        with settings.connect() as own:
            assert "again, since the server had lost it" in str(ensure_slot(own, settings))
        again, _ = open_snapshot(settings)
        again.close()
        reader = Reader(settings, again.lsn)
        db.execute("INSERT INTO t VALUES (1)")
        until(lambda: reader.rows, "the row")
        reader.end()


def _is_given_up(db: psycopg.Connection[tuple[Any, ...]]) -> bool:
    """Fill the log further, and look."""
    for _ in range(3):
        db.execute("INSERT INTO t VALUES (0); DELETE FROM t; SELECT pg_switch_wal()")
    db.execute("CHECKPOINT")
    return db.execute("SELECT wal_status FROM pg_replication_slots").fetchone() == ("lost",)
