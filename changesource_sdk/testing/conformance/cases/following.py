"""The transactions after the snapshot: each arrives whole, in order and soon, at any size."""

from __future__ import annotations

from changesource_sdk.adapter import Delete, Update
from changesource_sdk.testing.conformance.case import Broken
from changesource_sdk.testing.conformance.pipeline_run import Watch
from changesource_sdk.testing.conformance.trial import Trial

TRANSACTIONS = 60
HUGE_ROWS = 2_000


def from_nothing(trial: Trial) -> None:
    """An empty store has an empty snapshot, and its first row arrives as a change."""
    with trial.running() as watch:
        watch.caught_up()
        trial.commit(trial.insert(1))
        watch.caught_up()


def in_order(trial: Trial) -> None:
    """Random inserts, updates and deletes lead through the states of the store, in their order."""
    trial.insert_many(5)
    with trial.running() as watch:
        watch.caught_up()
        for _ in range(TRANSACTIONS):
            trial.some_transaction()
        watch.caught_up()


def one_at_a_time(trial: Trial) -> None:
    """Each transaction arrives without waiting for the next."""
    trial.commit(trial.insert(90))
    with trial.running() as watch:
        watch.caught_up()
        for number in range(1, 6):
            trial.commit(trial.insert(number))
            try:
                watch.caught_up()
            except Broken as broken:
                raise (_held_back(trial, watch) or broken) from broken


def _held_back(trial: Trial, watch: Watch) -> Broken | None:
    """The verdict if the last transaction arrives once another follows it; None if it does not."""
    reached = watch.witness.judge.reached
    trial.commit(trial.insert(100))
    try:
        watch.until(lambda: watch.witness.judge.reached > reached, watch.witness.judge.missing)
    except Broken:
        return None
    return Broken(
        "a transaction is held back until the next one is written: an idle store would never show its last change. "
        "Yield a transaction when it ends, not when the next begins"
    )


def rewritten_rows(trial: Trial) -> None:
    """A row that is written again and again arrives in its last version, deleted and inserted again included."""
    trial.insert_many(2)
    with trial.running() as watch:
        watch.caught_up()
        for round_number in range(10):
            trial.commit(trial.update(1))
            if trial.has("deletes") and round_number % 3 == 2:
                trial.commit(trial.delete(1))
                trial.commit(trial.insert(1))
        watch.caught_up()


def deleted_rows(trial: Trial) -> None:
    """Deleted rows are gone, to the last."""
    trial.insert_many(6)
    with trial.running() as watch:
        watch.caught_up()
        for number in range(1, 7):
            trial.commit(trial.delete(number))
            watch.caught_up()


def whole_transactions(trial: Trial) -> None:
    """The changes of a transaction arrive together."""
    trial.insert_many(4)
    with trial.running() as watch:
        watch.caught_up()
        for first in range(10, 60, 10):
            trial.commit(*[trial.insert(first + number) for number in range(7)])
            if trial.has("updates"):
                trial.commit(trial.update(1), trial.update(2), trial.update(3))
            if trial.has("deletes"):
                trial.commit(trial.delete(first), trial.insert(first + 8), trial.delete(first + 1))
        watch.caught_up()


def empty_transactions(trial: Trial) -> None:
    """Transactions that leave nothing behind do no harm."""
    trial.commit(trial.insert(1))
    with trial.running() as watch:
        watch.caught_up()
        for number in range(3):
            trial.commit()
            if trial.has("deletes"):
                trial.commit(trial.insert(50), trial.delete(50))
            if trial.has("updates"):
                trial.commit(Update(trial.name, trial.row(1, 0)))
            trial.commit(trial.insert(10 + number))
            watch.caught_up()


def huge_transaction(trial: Trial) -> None:
    """A transaction of thousands of rows arrives, as one."""
    trial.commit(trial.insert(HUGE_ROWS + 1))
    with trial.running() as watch:
        watch.caught_up()
        trial.commit(*[trial.insert(number) for number in range(HUGE_ROWS)])
        trial.commit(trial.insert(HUGE_ROWS))
        watch.caught_up()


def changed_keys(trial: Trial) -> None:
    """A row whose key changes moves: it is not under the old key any more, which can be used again."""
    trial.insert_many(4)
    with trial.running() as watch:
        watch.caught_up()
        for number in (1, 2):
            old = trial.row(number, 0)
            key = {column: old[column] for column in trial.table.key}
            trial.commit(Update(trial.name, trial.row(number + 100, 1), old_key=key))
            watch.caught_up()
            trial.commit(trial.insert(number))
        if trial.has("deletes"):
            moved = trial.row(101, 0)
            trial.commit(Delete(trial.name, {column: moved[column] for column in trial.table.key}))
        watch.caught_up()
