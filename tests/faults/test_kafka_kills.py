"""Kill loop over Kafka: the broker, the pipeline and the endpoint are killed in turn under a load of transactions.

The load is Debezium-shaped: overlapping transactions over two tables and five partitions, each of which moves money and
leaves a line in a ledger. At every watermark no transaction may be there in part; in the end nothing may be lost or
doubled. Knobs: `FAULT_SEED` repeats a run, `FAULT_ROUNDS` sets its length.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from changesource_sdk.testing.fake_cache import FakeCache
from protocol import rules
from tests.support.kafka_bank import Bank, Working
from tests.support.kafka_broker import KafkaBroker
from tests.support.serving import Serving
from tests.support.stubborn import follow
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]

SEED = int(os.environ.get("FAULT_SEED") or random.randrange(1 << 32))
ROUNDS = int(os.environ.get("FAULT_ROUNDS") or 30)
SLOW_ROUNDS = max(1, ROUNDS // 5)
READY_SECONDS = 240


@pytest.fixture
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as made:
        yield made


def _wreak(cache: FakeCache, faults: list[Callable[[], object]], rounds: int) -> None:
    """In turn, each after the consumer got a little further."""
    hand = random.Random(SEED)
    for number in range(rounds):
        further = len(cache.commits) + hand.randrange(1, 15)
        until(
            lambda wanted=further: len(cache.commits) >= wanted, f"progress in round {number}, seed {SEED}", seconds=240
        )
        faults[number % len(faults)]()


@pytest.mark.parametrize(("runner", "rounds"), [("inline", ROUNDS), ("spark", SLOW_ROUNDS)])
async def test_transactions_stay_whole_whatever_is_killed(
    runner: str, rounds: int, broker: KafkaBroker, tmp_path: Path
) -> None:
    print(f"FAULT_SEED={SEED} FAULT_ROUNDS={ROUNDS}")
    bank = Bank(broker, SEED)
    bank.open_accounts()
    endpoint = Serving("kafka", bank.settings, tmp_path / "state", options=("--runner", runner))

    def kill_broker() -> None:
        broker.kill()
        broker.start_again()

    def kill_all() -> None:
        endpoint.kill()
        endpoint.start(seconds=READY_SECONDS)

    def look(cache: FakeCache) -> None:
        bank.assert_whole(cache.rows("account"), cache.rows("ledger"), f"at {cache.watermark}, seed {SEED}")

    def is_complete(cache: FakeCache) -> bool:
        return bank.is_all_of(cache.rows("account"), cache.rows("ledger"))

    with endpoint:
        with Working(bank, broker, SEED):
            await asyncio.to_thread(endpoint.start, seconds=READY_SECONDS)
            cache = FakeCache(endpoint.stream_url, timeout=60)
            await cache.initial_sync()
            look(cache)
            over = threading.Event()
            following = asyncio.create_task(follow(cache, lambda: over.is_set() and is_complete(cache), look))
            faults: list[Callable[[], object]] = [kill_broker, endpoint.kill_pipeline, kill_all]
            wreaking = asyncio.create_task(asyncio.to_thread(_wreak, cache, faults, rounds))
            await asyncio.wait({wreaking, following}, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                following.result()
            await wreaking
        over.set()
        await asyncio.wait_for(following, 240)
        print(endpoint.process.tail(60))
        assert cache.commits == sorted(set(cache.commits))
        assert [str(violation) for violation in rules.check(cache.transcript)] == []
        assert endpoint.status()["log"]["generation"] == 1, "nothing here may cost a sync from scratch"
