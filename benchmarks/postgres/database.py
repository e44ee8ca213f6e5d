"""The measured database: one table of eight columns, and a writer that updates it at a given pace.

The writer is a process of its own (`python -m benchmarks.postgres.database URL …`), so that it takes nothing from the
reader that measures it. Each of its transactions updates `size` rows.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.support.peers.postgres_server import PostgresServer
from tests.support.tools import REPOSITORY

SERVER = {
    "wal_level": "logical",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "wal_sender_timeout": "0",
    # As a server comes: it streams only what is flushed, and with these off that waits for the next of its rounds.
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
}
TABLE = """CREATE TABLE issue (id int8 PRIMARY KEY, title text NOT NULL, body text, owner text NOT NULL,
open bool NOT NULL, score float8, created timestamptz NOT NULL, labels jsonb)"""
ROWS = """INSERT INTO issue SELECT n, 'Issue number ' || n, 'Lorem ipsum dolor sit amet, consectetur adipiscing.',
'user-' || n %% 1000, n %% 2 = 0, n / 7.0, '2024-01-01Z'::timestamptz + n * interval '1.234567 s', '["bug", "p1"]'
FROM generate_series(1, %s) n"""
UPDATE = "UPDATE issue SET score = score + 1, open = NOT open WHERE id >= %s AND id < %s"


@contextmanager
def database(rows: int) -> Iterator[tuple[PostgresServer, str]]:
    """A server, and the address of a database that holds so many rows."""
    with PostgresServer(copy_of=None, **SERVER) as server:
        url = server.create_database("store")
        with psycopg.connect(url, autocommit=True) as db:
            db.execute(TABLE)
            db.execute(ROWS, [rows])
            db.execute("VACUUM ANALYZE issue")
            db.execute("CHECKPOINT")
        yield server, url


def position(url: str) -> int:
    """The end of the server's log now."""
    with psycopg.connect(url, autocommit=True) as db:
        found = db.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()
    assert found is not None
    return int(found[0])


@contextmanager
def writer(url: str, *, rows: int, rate: float, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    """A process that commits `rate` transactions a second, of one row each."""
    command = [sys.executable, "-m", "benchmarks.postgres.database", url, str(rows), str(rate), str(seconds)]
    with subprocess.Popen(command, cwd=REPOSITORY) as process:
        try:
            yield process
        finally:
            process.terminate()


def write(url: str, *, rows: int, transactions: int, size: int) -> None:
    """So many transactions of so many rows, as fast as they go."""
    with psycopg.connect(url) as db:
        for number in range(transactions):
            first = 1 + number * size % max(1, rows - size)
            db.execute(UPDATE, [first, first + size])
            db.commit()


def _paced(url: str, rows: int, rate: float, seconds: float) -> None:
    begun = time.monotonic()
    with psycopg.connect(url, autocommit=True) as db:
        for number in range(round(rate * seconds)):
            pause = begun + number / rate - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            first = 1 + number % rows
            db.execute(UPDATE, [first, first + 1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.postgres.database", description=__doc__)
    parser.add_argument("url")
    parser.add_argument("rows", type=int)
    parser.add_argument("rate", type=float)
    parser.add_argument("seconds", type=float)
    given = parser.parse_args()
    _paced(given.url, given.rows, given.rate, given.seconds)
