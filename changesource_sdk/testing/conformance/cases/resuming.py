"""Resuming: from every position, after a stop, after SIGKILL, after failures of all kinds."""

from __future__ import annotations

import time
from copy import deepcopy

from changesource_sdk.testing.conformance.case import Broken
from changesource_sdk.testing.conformance.checkpoints import STEPS, adding, checkpoints, continue_from, read_all
from changesource_sdk.testing.conformance.judge import Judge
from changesource_sdk.testing.conformance.pipeline_run import PipelineProcess, Watch
from changesource_sdk.testing.conformance.reading import Follower, memory_encoder, position_is_json
from changesource_sdk.testing.conformance.trial import Trial

DAY_S = 86_400.0
KILLS = 3
RESTARTED = "after a restart: changes(after) must continue from `after`, not from a place of its own"
KILLED = "after SIGKILL: changes(after) must continue from `after`, not from a place of its own"
REPEATED = (
    "while transactions came twice or late, and partitions in reverse order: partitions are read in any order and in "
    "parallel, so none may depend on another; a transaction is recognised by its position"
)
DROPPED = (
    "after a dropped connection: changes(after) must continue from `after`; a place that an adapter keeps when it "
    "yields is ahead of what the log holds"
)


def from_every_position(trial: Trial) -> None:
    """A new adapter continues right after any position."""
    points = checkpoints(trial)
    for number in range(len(points)):
        continue_from(trial, points, number)


def positions_are_sound(trial: Trial) -> None:
    """Positions are JSON, and no two transactions have the same; integers increase."""
    last = ""
    for point in checkpoints(trial):
        position_is_json(point.position)
        if point.watermark is not None and point.watermark <= last:
            raise Broken(
                f"the watermark {point.watermark} follows {last}: watermarks that an adapter gives must increase; give "
                f"none, and the log makes its own"
            )
        last = point.watermark or last


def commit_times_are_milliseconds(trial: Trial) -> None:
    """Commit times, if there are any, are milliseconds since 1970."""
    for point in checkpoints(trial):
        if point.commit_time_ms is not None and abs(point.commit_time_ms / 1000 - time.time()) > DAY_S:
            raise Broken(
                f"commit_time_ms is {point.commit_time_ms:.0f} for a transaction that was committed just now: give "
                f"milliseconds since 1970 (time.time() * 1000), or leave it out"
            )


def reading_again(trial: Trial) -> None:
    """What was read but not acknowledged can be read again, with the same result."""
    trial.insert_many(3)
    start = trial.read_snapshot()
    judge = Judge(trial.history)
    judge.snapshot(start.replica.tables)
    for _ in range(STEPS):
        trial.some_transaction()
    for when in ("the first time", "again", "once more"):
        encoder = memory_encoder(start.encoder.schema)
        follower = Follower(trial.adapter(), start.position, encoder)
        with adding(
            f"while reading {when} from {start.position!r}: what was read is not yet acknowledged, and must stay"
        ):
            read_all(trial, follower, Judge(trial.history, judge.reached), deepcopy(start.replica))


def after_a_stop(trial: Trial) -> None:
    """A pipeline that was stopped continues with what was written meanwhile, without a new snapshot."""
    trial.insert_many(3)
    with trial.watch() as watch:
        for round_number in range(3):
            with trial.running_into(watch), adding(RESTARTED if round_number else "at the first start"):
                watch.caught_up()
                trial.some_transaction()
                watch.caught_up()
            for _ in range(round_number + 1):
                trial.some_transaction()
        with trial.running_into(watch), adding(RESTARTED):
            watch.caught_up()
        if watch.witness.generation != 1:
            raise Broken(
                f"{watch.witness.generation} snapshots were taken where one was enough: after a stop, changes() must "
                f"continue from the position it is given"
            )


def repeated(trial: Trial) -> None:
    """Transactions that come twice, late, or again after newer ones, and partitions in reverse, are stored once."""
    trial.insert_many(3)
    make = trial.faults.adapter(trial.adapter, duplicate=2, reorder=1, delay=1, within=6)
    with trial.running(make) as watch, adding(REPEATED):
        watch.caught_up()
        for _ in range(12):
            trial.some_transaction()
            watch.caught_up()
    trial.faults.settle()


def interrupted(trial: Trial) -> None:
    """A connection that drops, in the middle of a transaction too, costs nothing but a retry."""
    trial.insert_many(3)
    make = trial.faults.adapter(trial.adapter, drop=3, within=8)
    with trial.running(make) as watch, adding(DROPPED):
        watch.caught_up()
        for _ in range(12):
            trial.some_transaction()
            watch.caught_up()
    trial.faults.settle()


def killed(trial: Trial) -> None:
    """A pipeline that is killed at any point loses nothing and repeats nothing."""
    trial.insert_many(20)
    with trial.watch() as watch, adding(KILLED):
        for number in range(KILLS):
            _run_and_kill(trial, watch, in_snapshot=number == 0)
            for _ in range(5):
                trial.some_transaction()
        with PipelineProcess(trial.pipeline(), watch) as process:
            watch.caught_up()
            process.stop()
    trial.faults.settle()


def _run_and_kill(trial: Trial, watch: Watch, *, in_snapshot: bool) -> None:
    """Kill it while it writes its snapshot, or right after it has moved and while it has more to do."""
    judge, spool, reached = watch.witness.judge, watch.store.layout.spool, watch.witness.judge.reached
    with PipelineProcess(trial.pipeline(), watch) as process:
        if in_snapshot:
            watch.until(lambda: any(spool.glob("*/part-*")), judge.missing)
        else:
            watch.until(lambda: judge.reached > reached, judge.missing)
        trial.some_transaction()
        trial.faults.kill(process.pid)
