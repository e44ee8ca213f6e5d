"""Properties of an adapter before anything is written: its tables, and whether it can be pickled and stopped."""

from __future__ import annotations

import pickle
import threading
from typing import TypeVar

from changesource_sdk.adapter import Partition, Row
from changesource_sdk.pipeline.snapshot.take import checked_schema
from changesource_sdk.testing.conformance.case import Broken
from changesource_sdk.testing.conformance.pipeline_run import STOP_S
from changesource_sdk.testing.conformance.reading import position_is_json, within
from changesource_sdk.testing.conformance.trial import Trial

T = TypeVar("T")
TAIL_THREAD = "changesource-tail"


def tables_are_sound(trial: Trial) -> None:
    """`tables()` fits a consumer, and returns the same when called again."""
    within(trial.patience, "tables()", lambda: checked_schema(trial.tables))
    again = tuple(within(trial.patience, "tables()", lambda: trial.adapter().tables()))
    if again != tuple(trial.tables):
        raise Broken("tables() differs when a new adapter is asked, though nothing changed in the store")
    for table in trial.tables:
        if not table.key:
            raise Broken(f"table {table.full_name} has no key: clients cannot sync it; declare key=(…)")


def travels(trial: Trial) -> None:
    """The adapter can be sent to another process, before and after it was used, and works there."""
    if trial.has("writes"):
        trial.insert_many(3)
    adapter = trial.adapter()
    for when in ("new", "used"):
        copy = _pickled(adapter, f"the {when} adapter")
        within(trial.patience, "tables() of a pickled adapter", copy.tables)
        snapshot = within(trial.patience, "snapshot()", adapter.snapshot)
        if snapshot.close is not None:
            snapshot.close()


def partitions_read_again(trial: Trial) -> None:
    """A partition can be pickled, and gives the same rows each time it is read."""
    if trial.has("writes"):
        trial.insert_many(20)
    snapshot = within(trial.patience, "snapshot()", trial.adapter().snapshot)
    position_is_json(snapshot.position)
    try:
        for partition in snapshot.partitions:
            first = _rows(trial, partition)
            travelled = _pickled(partition, f"a partition of {partition.table}")
            if _rows(trial, travelled) != first or _rows(trial, partition) != first:
                raise Broken(
                    f"a partition of {partition.table} gives other rows when it is read again; it is read again when a "
                    f"task fails: let rows() start afresh each time, and at the snapshot's position"
                )
    finally:
        if snapshot.close is not None:
            snapshot.close()


def can_be_stopped(trial: Trial) -> None:
    """A pipeline can be stopped: `changes()` returns now and then, or `close()` makes it return."""
    if trial.has("writes"):
        trial.insert_many(1)
    before = set(threading.enumerate())
    with trial.running() as watch:
        if trial.has("writes"):
            watch.caught_up()
        watch.until(lambda: watch.witness.generation > 0, lambda: "no snapshot came")
    left = [thread for thread in threading.enumerate() if thread not in before and thread.name == TAIL_THREAD]
    if left:
        raise Broken(
            f"changes() still blocks {STOP_S:g} s after a request to stop: give the adapter a close() that "
            f"makes changes() return, or let changes() return when there is nothing for a while"
        )


def _rows(trial: Trial, partition: Partition) -> list[Row]:
    rows = within(trial.patience, f"rows of {partition.table}", lambda: [dict(row) for row in partition.rows()])
    return sorted(rows, key=repr)


def _pickled(thing: T, what: str) -> T:
    try:
        travelled: T = pickle.loads(pickle.dumps(thing))
    except Exception as error:
        raise Broken(
            f"{what} cannot be pickled ({type(error).__name__}: {error}): Spark sends it to other processes. Keep "
            f"connections, locks and open files out of it, or give it __getstate__"
        ) from error
    return travelled
