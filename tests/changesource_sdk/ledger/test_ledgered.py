"""A store with a ledger in a running pipeline: confirmations never overtake their data, and none is lost or doubled."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from adapters.memory import MemoryAdapter
from changesource_sdk import Position, Transaction
from changesource_sdk.adapter import Snapshot
from changesource_sdk.errors import ConfigurationError, ResyncRequired
from changesource_sdk.ledger import adapter as ledger_adapter
from changesource_sdk.ledger.adapter import LedgeredAdapter
from changesource_sdk.ledger.file import LedgerFile
from tests.changesource_sdk.ledger.lagging_store import Application, Consumer, LaggingAdapter
from tests.changesource_sdk.pipeline.runner_fixtures import Watched, running

SEEDS = range(int(os.environ.get("LEDGER_SEEDS", "6")))


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Application]:
    with Application(tmp_path) as made:
        yield made


def consumer(seen: Watched, refused: set[str] | None = None) -> Consumer:
    """What a consumer holds that read everything there is."""
    made = Consumer()
    made.take(seen.snapshot_payloads(), set())
    made.check(refused or set())
    made.take(seen.log_payloads(), refused or set())
    assert made.seen_twice == []
    assert made.overtaken == []
    return made


async def test_a_confirmation_waits_for_the_data_it_confirms(app: Application, tmp_path: Path) -> None:
    lagging = LaggingAdapter(app.store)
    with running(lambda: app.adapter(lagging), tmp_path / "state") as seen:
        seen.until_generation(1)
        assert await app.push("a", 1) == {}
        assert await app.push("b", 1, "refuse") == {"error": "app", "message": "no"}
        assert await app.push("a", 2) == {}
        assert consumer(seen).confirmed == {}
        lagging.show(1)
        seen.until(lambda: consumer(seen, {"g/b/1"}).confirmed == {"a": 1, "b": 1}, "the first two")
        assert consumer(seen, {"g/b/1"}).notes == {"g/a/1"}
        lagging.show(2)
        seen.until(lambda: consumer(seen, {"g/b/1"}).confirmed == {"a": 2, "b": 1}, "the third")


async def test_a_confirmation_known_in_time_travels_with_its_data(app: Application, tmp_path: Path) -> None:
    lagging = LaggingAdapter(app.store)
    with running(lambda: app.adapter(lagging), tmp_path / "state") as seen:
        seen.until_generation(1)
        await app.push("a", 1)
        lagging.show(1)
        seen.until(lambda: consumer(seen).confirmed == {"a": 1}, "the confirmation")
        assert len(list(seen.log.read_after("00", 1 << 30))) == 1


async def test_refusals_are_told_and_forgotten_while_the_store_is_silent(app: Application, tmp_path: Path) -> None:
    with running(app.adapter, tmp_path / "state") as seen:
        seen.until_generation(1)
        await app.push("a", 1, "refuse")
        await app.push("a", 2, "refuse")
        seen.until(lambda: consumer(seen, {"g/a/1", "g/a/2"}).results == {("a", 1), ("a", 2)}, "the results")
        await app.clean_up("a", 1)
        seen.until(lambda: consumer(seen, {"g/a/1", "g/a/2"}).results == {("a", 2)}, "the first forgotten")
        await app.clean_up("a", 9)
        seen.until(lambda: consumer(seen, {"g/a/1", "g/a/2"}).results == set(), "the second forgotten")


async def test_a_mutator_that_does_not_say_where_it_wrote_is_refused(
    app: Application, caplog: pytest.LogCaptureFixture
) -> None:
    result = await app.push("a", 1, "forgetful")
    assert result["error"] == "app"
    assert "error id" in result["message"], "clients are not told what the application's author did wrong"
    assert "tx.wrote_at(position)" in caplog.text


async def test_a_mutation_pushed_twice_is_confirmed_once(app: Application, tmp_path: Path) -> None:
    await app.push("a", 1)
    assert (await app.push("a", 1))["error"] == "alreadyProcessed"
    assert (await app.push("a", 3))["reason"] == "oooMutation"
    assert len(app.store.history) == 1


async def test_a_snapshot_confirms_what_it_shows_and_nothing_else(app: Application) -> None:
    await app.push("a", 1)
    await app.push("b", 1, "refuse")
    await app.push("a", 2)

    class Early(MemoryAdapter):
        """Takes its snapshot before the last transaction."""

        def snapshot(self) -> Snapshot:
            return Snapshot(1, super().snapshot().partitions)

    snapshot = app.adapter(Early(store=app.store)).snapshot()
    rows = {partition.table: list(partition.rows()) for partition in snapshot.partitions}
    assert [(row["clientID"], row["lastMutationID"]) for row in rows["zero_0.clients"]] == [("a", 1), ("b", 1)]
    assert [row["mutationID"] for row in rows["zero_0.mutations"]] == [1]
    (later,) = [list(each.changes) for each in _first(app.adapter(), snapshot.position, 1)]
    assert [type(change).__name__ for change in later] == ["Insert", "Update"]


def has_snapshot(seen: Watched) -> bool:
    return seen.log.state().generation >= 1


def _first(adapter: LedgeredAdapter, after: Position, count: int) -> list[Transaction]:
    found = []
    for transaction in adapter.changes(after):
        found.append(type(transaction)(transaction.position, list(transaction.changes)))
        if len(found) == count:
            break
    adapter.close()
    return found


async def test_the_ledger_shrinks_to_what_the_log_does_not_hold(
    app: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_adapter, "SETTLE_S", 0.0)
    await app.push("a", 1)
    await app.push("b", 1, "refuse")
    with running(app.adapter, tmp_path / "state") as seen:
        seen.until_generation(1)
        await app.push("a", 2)
        ledger = LedgerFile(app.ledger)
        seen.until(lambda: ledger.settled == ledger.last == 3, "the ledger settled")
        assert ledger.after(0) == []
        ledger.close()
    fresh = app.adapter().snapshot()
    rows = {partition.table: list(partition.rows()) for partition in fresh.partitions}
    assert [row["lastMutationID"] for row in rows["zero_0.clients"]] == [2, 1]
    assert len(rows["zero_0.mutations"]) == 1


async def test_settling_twice_or_late_changes_nothing(app: Application) -> None:
    for number in (1, 2, 3):
        await app.push("a", number, "refuse")
    await app.clean_up("a", 2)
    ledger = LedgerFile(app.ledger)
    for sequence in (2, 1, 2, 5):
        ledger.settle(sequence)
    assert (ledger.settled, ledger.last) == (5, 5)
    _, clients, results, entries = ledger.settled_rows()
    assert [row["lastMutationID"] for row in clients] == [3]
    assert [row["mutationID"] for row in results] == [3]
    assert entries == []
    ledger.close()


async def test_positions_that_cannot_be_continued_ask_for_a_new_snapshot(app: Application, tmp_path: Path) -> None:
    await app.push("a", 1)
    position = app.adapter().snapshot().position
    assert isinstance(position, dict)
    for lost in (7, {**position, "ledger": "another"}, {**position, "entry": 9}):
        with pytest.raises(ResyncRequired, match="position-lost"):
            next(app.adapter().changes(lost))


async def test_an_adapter_may_order_its_positions_itself(app: Application) -> None:
    class Later(MemoryAdapter):
        """Its positions name what comes next, so one is reached when a greater one is."""

        def has_reached(self, wanted: int, at: int) -> bool:
            return at > wanted

    position = app.adapter().snapshot().position
    await app.push("a", 1)
    await app.push("a", 2)
    first, second = _first(app.adapter(Later(store=app.store)), position, 2)
    assert "lastMutationID" not in str(first)
    assert "'lastMutationID': 1" in str(second)


def test_a_store_with_watermarks_of_its_own_is_refused(app: Application) -> None:
    class Marked(MemoryAdapter):
        def snapshot(self) -> Snapshot:
            return Snapshot(0, [], watermark="01")

    with pytest.raises(ConfigurationError, match="ledger-not-needed"):
        app.adapter(Marked(store=app.store)).snapshot()


def test_a_ledger_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="ledger-unusable"):
        LedgerFile(tmp_path / "no" / "such.db")


@pytest.mark.parametrize("seed", SEEDS)
async def test_with_random_delays_and_restarts_no_confirmation_overtakes_its_data(seed: int, tmp_path: Path) -> None:
    """Clients push, the adapter lags, the pipeline is stopped and started anywhere."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    done = dict.fromkeys("abc", 0)
    refused: set[str] = set()
    with Application(tmp_path) as app:
        for _ in range(4):
            lagging = LaggingAdapter(app.store)
            with running(partial(app.adapter, lagging), tmp_path / "state") as seen:
                seen.until(partial(has_snapshot, seen), "a snapshot")
                for _ in range(chance.randrange(15)):
                    client = chance.choice("abc")
                    done[client] += 1
                    name = chance.choice(["write", "write", "write", "refuse"])
                    if name == "refuse":
                        refused.add(f"g/{client}/{done[client]}")
                    await app.push(client, done[client], name)
                    if chance.random() < 0.3:
                        lagging.show(chance.randint(0, len(app.store.history)))
                    if chance.random() < 0.2:
                        await app.clean_up(client, chance.randint(1, done[client]))
        last = LaggingAdapter(app.store)
        last.show(len(app.store.history))
        with running(lambda: app.adapter(last), tmp_path / "state") as seen:
            expected = {client: number for client, number in done.items() if number}
            seen.until(lambda: consumer(seen, refused).confirmed == expected, "every confirmation")
            assert len(consumer(seen, refused).notes) == len(app.store.history)
