"""The cache's replicator, killed at any moment: the replica is always whole, and in the end equals the database.

A ledger is written all the while; a reader looks at the replica after every kill. What the change log says between two
versions must lead from the one to the other, through every restart. `FAULT_SEED` repeats a run, `FAULT_ROUNDS` sets its
length.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from reference_cache.replica.change_log import SchemaChanged, Truncated, changes_between
from reference_cache.replica.errors import ChangesForgotten
from reference_cache.replica.replica import Replica, open_replica
from reference_cache.replica.schema import read_schema
from reference_cache.replica.stored_catalog import Origin, ReplicaState, read_state
from reference_cache.replicator.process import ReplicatorProcess
from reference_cache.replicator.settings import ReplicatorSettings
from reference_cache.zql.ivm.change import Add, Edit, Remove
from tests.support.fixtures.serving import MakeServing, MakeStore
from tests.support.waiting import until
from tests.support.workloads.ledger import Ledger
from tests.support.workloads.sqlite_store import SqliteStore

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

SEED = int(os.environ.get("FAULT_SEED") or random.randrange(1 << 32))
ROUNDS = int(os.environ.get("FAULT_ROUNDS") or 30)
Rows = dict[object, tuple[object, ...]]


class Follower:
    """A reader that knows the ledger by the change log alone, as the view syncer does."""

    def __init__(self, path: Path) -> None:
        self._replica: Replica = open_replica(path)
        self._rows: Rows = {}
        self.version = ""
        self.resets = 0

    def advance(self) -> None:
        """Move to the newest version and compare what the log led to with what is there."""
        with closing(self._replica.connect()) as connection:
            connection.execute("BEGIN")
            state = read_state(connection)
            assert state.version >= self.version, f"the replica went back to {state.version}, seed {SEED}"
            self._follow(connection, state)
            self._check(connection)
            self.version = state.version

    def _follow(self, connection: sqlite3.Connection, state: ReplicaState) -> None:
        try:
            changes = list(
                changes_between(connection, read_schema(connection), self.version, state.version, {"ledger"})
            )
        except ChangesForgotten:
            self.resets += 1
            self._rows = _stored(connection)
            return
        for _, _, change in changes:
            assert not isinstance(change, Truncated | SchemaChanged)
            if isinstance(change, Remove | Edit):
                gone = change.node.row if isinstance(change, Remove) else change.old_node.row
                assert self._rows.pop(gone[0]) == gone, f"seed {SEED}"
            if isinstance(change, Add | Edit):
                assert change.node.row[0] not in self._rows, f"seed {SEED}"
                self._rows[change.node.row[0]] = change.node.row

    def _check(self, connection: sqlite3.Connection) -> None:
        assert self._rows == _stored(connection), f"the log and the table differ, seed {SEED}"
        balance, total = connection.execute(
            "SELECT (SELECT balance FROM account), (SELECT coalesce(sum(amount), 0) FROM ledger)"
        ).fetchone()
        assert balance == total, f"half a transaction at {self.version}, seed {SEED}"


def _stored(connection: sqlite3.Connection) -> Rows:
    return {row[0]: row for row in connection.execute('SELECT id, amount, "_0_version" FROM ledger')}


@asynccontextmanager
async def replicating(url: str, path: Path) -> AsyncIterator[ReplicatorProcess]:
    replicator = ReplicatorProcess(ReplicatorSettings(url, path, Origin("zero")))
    task = asyncio.create_task(replicator.run())
    try:
        yield replicator
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _kill_soon(replicator: ReplicatorProcess, chance: random.Random, longest: float) -> None:
    await asyncio.sleep(chance.uniform(0, longest))  # the moment of the kill is the point of the test
    if replicator.pid is not None:
        os.kill(replicator.pid, signal.SIGKILL)


async def test_a_replicator_killed_at_any_moment_loses_and_doubles_nothing(
    serving: MakeServing, store: MakeStore, tmp_path: Path
) -> None:
    database, path, chance = store(), tmp_path / "replica.db", random.Random(SEED)
    with Ledger(database, SEED, per_second=60) as ledger:
        endpoint = serving(database).start()
        async with replicating(endpoint.stream_url, path) as replicator:
            await asyncio.to_thread(until, path.exists, "a replica")
            follower = Follower(path)
            for _ in range(ROUNDS):
                await _kill_soon(replicator, chance, 2.0)
                await asyncio.to_thread(follower.advance)
            ledger.close()
            await asyncio.to_thread(until, lambda: _is_complete(path, database), "the replica complete", seconds=60)
            follower.advance()
    assert follower.resets <= 1, "the log was kept through every restart"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def _is_complete(path: Path, database: SqliteStore) -> bool:
    with closing(open_replica(path).connect()) as connection:
        return connection.execute("SELECT id, amount FROM ledger ORDER BY id").fetchall() == database.rows("ledger")


async def test_an_initial_sync_killed_at_any_moment_leaves_no_replica_or_a_whole_one(
    serving: MakeServing, store: MakeStore, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    database = store("CREATE TABLE item (id INTEGER PRIMARY KEY, text TEXT)")
    database.insert("item", ((number, f"text {number}") for number in range(100_000)))
    endpoint = serving(database).start()
    for number in range(max(2, ROUNDS // 5)):
        path = tmp_path / f"replica-{number}.db"
        async with replicating(endpoint.stream_url, path) as replicator:
            await _kill_soon(replicator, chance, 4.0)
            if path.exists():
                _assert_whole(path)
            await asyncio.to_thread(until, path.exists, "a replica after the kill", seconds=60)
            _assert_whole(path)


def _assert_whole(path: Path) -> None:
    with closing(open_replica(path).connect()) as connection:
        assert connection.execute("SELECT count(*) FROM item").fetchone() == (100_000,), f"seed {SEED}"
