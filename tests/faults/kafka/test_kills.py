"""Kill loop over Kafka: the broker, the pipeline and the endpoint are killed in turn under a load of transactions.

The load is Debezium-shaped: overlapping transactions over two tables and five partitions, each of which moves money and
leaves a line in a ledger. At every watermark no transaction may be there in part, for a consumer that looks at each of
them and in the replica of the official zero-cache; in the end nothing may be lost or doubled in either. Knobs:
`FAULT_SEED` repeats a run, `FAULT_ROUNDS` sets how many kills there are (30; on Spark 6 unless it is given).
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from changesource_sdk.testing.fake_cache import FakeCache
from protocol import rules
from tests.support.fakes.stubborn import follow
from tests.support.fixtures.zero_cache import MakeZeroCache
from tests.support.peers.kafka_broker import KafkaBroker
from tests.support.peers.serving import Serving
from tests.support.peers.spark_serving import LOCAL, SPARK_SECONDS, SparkServing, kill
from tests.support.peers.zero_cache import ZeroCache
from tests.support.waiting import until
from tests.support.workloads.kafka_bank import ACCOUNTS, BALANCE, Bank, Working
from tests.support.workloads.kill_loop import while_following, wreak

pytestmark = [pytest.mark.faults, pytest.mark.e2e, pytest.mark.timeout(1800)]

SEED = int(os.environ.get("FAULT_SEED") or random.randrange(1 << 32))
ROUNDS = int(os.environ.get("FAULT_ROUNDS") or 30)
SPARK_ROUNDS = int(os.environ.get("FAULT_ROUNDS") or 6)
CATCH_UP_S = 400
#: One query, so that it sees one watermark: all the money there is, and moves of which a part is missing.
WHOLE = """
    SELECT (SELECT sum(balance) FROM account),
           (SELECT count(*) FROM account AS side WHERE last > 0 AND NOT EXISTS (
                SELECT 1 FROM ledger WHERE ledger.id = side.last AND side.id IN (source, target)))
"""


@dataclass(slots=True)
class Hand:
    """Kills one thing after the other, and sees before each that no transaction is there in part."""

    endpoint: Serving
    broker: KafkaBroker
    cache: ZeroCache
    dice: random.Random

    def strike(self, number: int) -> None:
        """The next kill, in turn."""
        assert self.cache.replica.query(WHOLE) == [(ACCOUNTS * BALANCE, 0)], f"half a transaction, seed {SEED}"
        faults = (self._kill_broker, self._kill_pipeline, self._kill_endpoint)
        faults[number % len(faults)]()

    def _kill_broker(self) -> None:
        self.broker.kill()
        self.broker.start_again()

    def _kill_pipeline(self) -> None:
        """All of it; on Spark now and then its resident task alone, which Spark then starts again."""
        if isinstance(self.endpoint, SparkServing) and self.dice.random() < 0.5:
            kill(until(self.endpoint.task, "the resident task", seconds=SPARK_SECONDS) or 0)
        else:
            self.endpoint.kill_pipeline()

    def _kill_endpoint(self) -> None:
        self.endpoint.kill()
        self.endpoint.start(seconds=SPARK_SECONDS)

    def transactions(self) -> int:
        """How many transactions of the bank the log has, by the place it has reached among their boundaries."""
        offsets = self.endpoint.status()["log"]["position"]["offsets"]
        return next(int(at[0]) for topic, at in offsets.items() if topic.endswith(".transaction")) // 2


@pytest.fixture
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as made:
        yield made


@pytest.mark.parametrize(("runner", "rounds"), [("inline", ROUNDS), ("spark", SPARK_ROUNDS)])
async def test_transactions_stay_whole_whatever_is_killed(
    runner: str, rounds: int, broker: KafkaBroker, tmp_path: Path, zero_cache: MakeZeroCache
) -> None:
    print(f"FAULT_SEED={SEED} FAULT_ROUNDS={rounds}")
    bank = Bank(broker, SEED)
    bank.open_accounts()
    endpoint = _endpoint(runner, bank.settings, tmp_path / "state")

    def look(consumer: FakeCache) -> None:
        bank.assert_whole(consumer.rows("account"), consumer.rows("ledger"), f"at {consumer.watermark}, seed {SEED}")

    over = threading.Event()

    def is_complete() -> bool:
        return over.is_set() and bank.is_all_of(consumer.rows("account"), consumer.rows("ledger"))

    with endpoint:
        with Working(bank, broker, SEED, pause_s=0.05):
            await asyncio.to_thread(endpoint.start, seconds=SPARK_SECONDS)
            cache = zero_cache(endpoint.stream_url)
            await asyncio.to_thread(cache.start)
            consumer = FakeCache(endpoint.stream_url, timeout=60)
            await consumer.initial_sync()
            look(consumer)
            following = asyncio.create_task(follow(consumer, is_complete, look))
            hand = Hand(endpoint, broker, cache, dice := random.Random(SEED))
            loop = partial(wreak, hand.strike, hand.transactions, dice, rounds=rounds, steps=40)
            await while_following(following, loop)
        over.set()
        await asyncio.wait_for(following, CATCH_UP_S)
        await asyncio.to_thread(_assert_all_there, bank, endpoint, cache)
        assert consumer.commits == sorted(set(consumer.commits))
        assert [str(violation) for violation in rules.check(consumer.transcript)] == []


def _endpoint(runner: str, settings: dict[str, str], state: Path) -> Serving:
    if runner == "spark":
        return SparkServing("kafka", settings, state, master=LOCAL)
    return Serving("kafka", settings, state, options=("--runner", runner, "--permissions", "allow-all"))


def _assert_all_there(bank: Bank, endpoint: Serving, cache: ZeroCache) -> None:
    """The replica is what the bank committed, row by row, without one sync from scratch."""
    log = endpoint.status()["log"]
    cache.replica.wait_for_watermark(log["head"], seconds=CATCH_UP_S)
    accounts = [tuple(bank.accounts[number].values()) for number in sorted(bank.accounts)]
    lines = [tuple(bank.ledger[number].values()) for number in sorted(bank.ledger)]
    assert cache.replica.rows("account", ("id", "balance", "last")) == accounts
    assert cache.replica.rows("ledger", ("id", "source", "target", "amount")) == lines
    assert cache.replica.watermark() == log["head"]
    assert log["generation"] == 1, "nothing here may cost a sync from scratch"
    assert cache.exits == []
    print(f"{bank.moves} transactions arrived")
