"""Kill loop over Postgres: the server, the pipeline and the endpoint are killed in turn under a load that moves money.

Every transaction moves money between accounts and leaves a line in a ledger, so half a transaction shows as a wrong
total, and a lost or doubled one in the ledger. Two consumers follow: the SDK's fake cache, which adds up at every
watermark, and the official zero-cache, whose replica is added up over and over by an auditor. Knobs: `FAULT_SEED`
repeats a run, `FAULT_ROUNDS` sets its length.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest

from adapters.postgres.connection import connect
from adapters.postgres.replication.slot import slot_state
from adapters.postgres.settings import PostgresSettings
from changesource_sdk.testing.fake_cache import FakeCache
from protocol import rules
from tests.support.fakes.stubborn import follow
from tests.support.fixtures.zero_cache import MakeZeroCache
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.replica import Replica
from tests.support.peers.serving import Serving
from tests.support.peers.zero_cache import ZeroCache
from tests.support.waiting import until
from tests.support.workloads.kill_loop import while_following, wreak

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]

SEED = int(os.environ.get("FAULT_SEED") or random.randrange(1 << 32))
ROUNDS = int(os.environ.get("FAULT_ROUNDS") or 30)
ACCOUNTS = 20
BALANCE = 1000
CATCH_UP_S = 300
"""The bank goes on while things are dead: some of what it wrote may still be to come when it ends."""
AUDIT = 'SELECT (SELECT stateVersion FROM "_zero.replicationState"), (SELECT sum(balance) FROM account)'
TABLES = f"""
CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL);
CREATE TABLE ledger (id int PRIMARY KEY, source int, target int, amount int);
INSERT INTO account SELECT n, {BALANCE} FROM generate_series(1, {ACCOUNTS}) n;
"""


class Bank:
    """The application: moves money in a thread of its own, and goes on after each loss of the server."""

    def __init__(self, url: str, seed: int) -> None:
        self.url = url
        self._random = random.Random(seed)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work)
        with psycopg.connect(url, autocommit=True) as db:
            db.execute(TABLES.encode())

    def __enter__(self) -> Bank:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._closing.is_set():
            try:
                with psycopg.connect(self.url) as db:
                    self._move_until_lost(db)
            except psycopg.OperationalError:
                self._closing.wait(0.05)

    def _move_until_lost(self, db: psycopg.Connection) -> None:
        """Whether the last transaction before a loss was committed stands in the ledger."""
        found = db.execute("SELECT coalesce(max(id), 0) FROM ledger").fetchone()
        moves = int(found[0]) if found else 0
        while not self._closing.is_set():
            for _ in range(self._random.choice([1, 1, 1, 2, 5, 50])):
                moves += 1
                source, target = self._random.sample(range(1, ACCOUNTS + 1), 2)
                amount = self._random.randrange(100)
                db.execute("UPDATE account SET balance = balance - %s WHERE id = %s", (amount, source))
                db.execute("UPDATE account SET balance = balance + %s WHERE id = %s", (amount, target))
                db.execute("INSERT INTO ledger VALUES (%s, %s, %s, %s)", (moves, source, target, amount))
            db.commit()
            self._closing.wait(self._random.expovariate(30))

    def rows(self, table: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url) as db:
            return db.execute(f"SELECT * FROM {table} ORDER BY id".encode()).fetchall()


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer(wal_level="logical", synchronous_commit="on") as made:
        yield made


def _assert_whole(cache: FakeCache) -> None:
    total = sum(int(str(row["balance"])) for row in cache.rows("account").values())
    assert total == ACCOUNTS * BALANCE, f"half a transaction at {cache.watermark}, seed {SEED}"


class Auditor:
    """Adds up the balances in zero-cache's replica from its own thread, once for every state it gets to see.
    Invariant: one sum is read in one statement, so it belongs to one watermark.
    """

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._audit)
        self.totals: dict[str, int] = {}

    def __enter__(self) -> Auditor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()

    def _audit(self) -> None:
        while not self._closing.wait(0.05):
            [(watermark, total)] = self._replica.query(AUDIT)
            self.totals[str(watermark)] = int(str(total))


def _confirmed(url: str) -> int:
    with connect(url) as db:
        state = slot_state(db, PostgresSettings.parse(url).slot)
        assert state is not None
        return state.confirmed


def _wait_for_lines(cache: ZeroCache, lines: int) -> None:
    until(
        lambda: cache.replica.query("SELECT count(*) FROM ledger") == [(lines,)],
        f"{lines} lines in the replica, seed {SEED}",
        seconds=CATCH_UP_S,
    )


def _replicated(cache: ZeroCache, table: str) -> list[tuple[object, ...]]:
    columns = {"account": "id, balance", "ledger": "id, source, target, amount"}[table]
    return cache.replica.query(f"SELECT {columns} FROM {table} ORDER BY id")


@pytest.mark.parametrize("runner", ["inline", "spark"])
async def test_money_is_neither_made_nor_lost_whatever_is_killed(
    runner: str, server: PostgresServer, tmp_path: Path, zero_cache: MakeZeroCache
) -> None:
    print(f"FAULT_SEED={SEED} FAULT_ROUNDS={ROUNDS}")
    url = server.create_database("bank")
    bank = Bank(url, SEED)
    endpoint = Serving("postgres", {"dsn": url}, tmp_path / "state", options=("--runner", runner))

    def kill_server() -> None:
        server.kill()
        server.start_again()

    def kill_all() -> None:
        endpoint.kill()
        endpoint.start()

    def strike(number: int) -> None:
        faults = (kill_server, endpoint.kill_pipeline, kill_all)
        faults[number % len(faults)]()

    with endpoint:
        await asyncio.to_thread(endpoint.start)
        cache = FakeCache(endpoint.stream_url, timeout=60)
        await cache.initial_sync()
        official = await asyncio.to_thread(zero_cache(endpoint.stream_url).start)
        begun = _confirmed(url)
        ledger: list[tuple[object, ...]] = []
        following = asyncio.create_task(
            follow(cache, lambda: bool(ledger) and len(cache.tables["ledger"]) == len(ledger), _assert_whole)
        )
        with Auditor(official.replica) as auditor:
            with bank:
                loop = partial(wreak, strike, lambda: len(cache.commits), random.Random(SEED), rounds=ROUNDS, steps=15)
                await while_following(following, loop)
            ledger.extend(bank.rows("ledger"))
            await asyncio.wait_for(following, CATCH_UP_S)
            await asyncio.to_thread(_wait_for_lines, official, len(ledger))
        for table, rows in (("account", bank.rows("account")), ("ledger", ledger)):
            assert sorted(tuple(row.values()) for row in cache.rows(table).values()) == rows
            assert _replicated(official, table) == rows
        assert set(auditor.totals.values()) == {ACCOUNTS * BALANCE}, auditor.totals
        assert official.exits == []
        assert cache.commits == sorted(set(cache.commits))
        assert [str(violation) for violation in rules.check(cache.transcript)] == []
        assert endpoint.status()["log"]["generation"] == 1, "nothing here may cost a sync from scratch"
        until(lambda: _confirmed(url) > begun, "the slot to advance")
        print(
            f"{ROUNDS} kills on {runner}: {len(ledger)} moves, {len(cache.commits)} commits, "
            f"zero-cache audited at {len(auditor.totals)} watermarks"
        )
