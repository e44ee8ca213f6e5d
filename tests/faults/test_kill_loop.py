"""Kill loops: a busy store, a consumer that comes back, and a seeded hand that ends processes at any moment.

Money is moved between accounts in every transaction, so a consumer that ever sees half a transaction sees a
wrong total; every move also leaves a line in a ledger, so nothing can be lost or doubled unseen. Knobs:
`FAULT_SEED` repeats a run, `FAULT_ROUNDS` sets its length.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
from functools import partial

import pytest

from changesource_sdk.testing.fake_cache import FakeCache
from protocol import rules
from tests.support.fakes.stubborn import follow
from tests.support.fixtures.serving import MakeServing, MakeStore
from tests.support.fixtures.zero_cache import MakeZeroCache
from tests.support.peers.serving import Serving
from tests.support.workloads.kill_loop import while_following, wreak
from tests.support.workloads.sqlite_store import SqliteStore, wait_until_same

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

SEED = int(os.environ.get("FAULT_SEED") or random.randrange(1 << 32))
ROUNDS = int(os.environ.get("FAULT_ROUNDS") or 30)
SLOW_ROUNDS = max(1, ROUNDS // 5)
ACCOUNTS = 20
BALANCE = 1000
TABLES = (
    "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)",
    "CREATE TABLE ledger (id INTEGER PRIMARY KEY, source INTEGER, target INTEGER, amount INTEGER)",
)


class Bank:
    """The application: moves money in a thread of its own until the context ends."""

    def __init__(self, store: SqliteStore, seed: int) -> None:
        store.run(*TABLES)
        store.insert("account", [(number, BALANCE) for number in range(ACCOUNTS)])
        self.store = store
        self._random = random.Random(seed)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.moves = 0

    def __enter__(self) -> Bank:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop writing; everything written is committed."""
        self._closing.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._closing.is_set():
            # Mostly small transactions, now and then one too large for a single write to a socket.
            size = self._random.choice([1, 1, 1, 1, 1, 2, 2, 5, 20, 500])
            self.store.run(*(statement for _ in range(size) for statement in self._move()))
            self._closing.wait(self._random.expovariate(30))

    def _move(self) -> list[str]:
        source, target = self._random.sample(range(ACCOUNTS), 2)
        amount = self._random.randrange(100)
        self.moves += 1
        return [
            f"UPDATE account SET balance = balance - {amount} WHERE id = {source}",
            f"UPDATE account SET balance = balance + {amount} WHERE id = {target}",
            f"INSERT INTO ledger VALUES ({self.moves}, {source}, {target}, {amount})",
        ]


def _has_everything(cache: FakeCache, bank: Bank) -> bool:
    """Whether the consumer's rows equal the store's; compared whole only when the numbers agree."""
    if len(cache.rows("ledger")) != bank.moves:
        return False
    return all(_rows(cache, bank.store, table) == bank.store.rows(table) for table in ("account", "ledger"))


def _rows(cache: FakeCache, store: SqliteStore, table: str) -> list[tuple[object, ...]]:
    columns = list(store.columns(table))
    found = [tuple(row[name] for name in columns) for row in cache.rows(table).values()]
    return sorted(found, key=lambda row: int(str(row[0])))


def _assert_whole(cache: FakeCache) -> None:
    total = sum(int(str(row["balance"])) for row in cache.rows("account").values())
    assert total == ACCOUNTS * BALANCE, f"half a transaction at {cache.watermark}, seed {SEED}"


def _kill(endpoint: Serving) -> None:
    endpoint.kill()
    endpoint.start()


def _terminate(endpoint: Serving) -> None:
    assert endpoint.stop() == 0
    endpoint.start()


def _kill_pipeline(endpoint: Serving) -> None:
    endpoint.kill_pipeline()


def _freeze_pipeline(endpoint: Serving) -> None:
    """A writer that stalls and comes back late; the endpoint serves on meanwhile."""
    pids = endpoint.pipeline_pids()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    assert endpoint.ready()
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


FAULTS = (_kill, _kill, _terminate, _kill_pipeline, _kill_pipeline, _freeze_pipeline)


@pytest.mark.parametrize(("runner", "rounds"), [("inline", ROUNDS), ("spark", SLOW_ROUNDS)])
async def test_a_consumer_gets_every_transaction_once_whatever_is_killed(
    runner: str, rounds: int, store: MakeStore, serving: MakeServing
) -> None:
    print(f"FAULT_SEED={SEED} FAULT_ROUNDS={ROUNDS}")
    data = store()
    bank = Bank(data, SEED)
    endpoint = serving(data, runner=runner)
    await asyncio.to_thread(endpoint.start)
    cache = FakeCache(endpoint.stream_url, timeout=60)
    await cache.initial_sync()
    over = threading.Event()
    hand = random.Random(SEED)

    def strike(_: int) -> None:
        hand.choice(FAULTS)(endpoint)

    following = asyncio.create_task(
        follow(cache, lambda: over.is_set() and _has_everything(cache, bank), _assert_whole)
    )
    with bank:
        loop = partial(wreak, strike, lambda: len(cache.commits), hand, rounds=rounds, steps=15)
        await while_following(following, loop)
    over.set()
    await asyncio.wait_for(following, 240)
    assert len(cache.rows("ledger")) == bank.moves
    assert cache.commits == sorted(set(cache.commits))
    assert [str(violation) for violation in rules.check(cache.transcript)] == []
    assert endpoint.status()["log"]["generation"] == 1, "nothing here may cost a sync from scratch"


@pytest.mark.e2e
def test_the_official_cache_has_everything_whatever_is_killed(
    store: MakeStore, serving: MakeServing, zero_cache: MakeZeroCache
) -> None:
    print(f"FAULT_SEED={SEED} FAULT_ROUNDS={ROUNDS}")
    hand = random.Random(SEED)
    data = store()
    bank = Bank(data, SEED)
    endpoint = serving(data).start()
    cache = zero_cache(endpoint.stream_url, supervised=True).start()
    version = cache.replica.version()
    with bank:
        for _ in range(SLOW_ROUNDS):
            reached = bank.moves + hand.randrange(1, 50)
            cache.replica.wait_until(f"SELECT max(id) >= {reached} FROM ledger", seconds=120)
            fault = hand.choice([*FAULTS, None, None])
            if fault is not None:
                fault(endpoint)
            else:
                cache.kill()
                cache.start()
    wait_until_same(data, cache.replica, seconds=180)
    assert cache.replica.version() == version
    assert set(cache.exits) <= {-signal.SIGKILL}
