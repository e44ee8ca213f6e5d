"""Going on where one left off: from every position, after a stop, after SIGKILL, after failures of all kinds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass

from changesource_sdk.adapter import Position
from changesource_sdk.pipeline.snapshotting import checked_schema
from changesource_sdk.pipeline.transactions import TransactionEncoder
from changesource_sdk.positions import from_text, to_text
from changesource_sdk.testing.conformance.case import Broken
from changesource_sdk.testing.conformance.cases.declaring import position_is_json
from changesource_sdk.testing.conformance.judge import Judge
from changesource_sdk.testing.conformance.pipeline_run import PipelineProcess, Watch
from changesource_sdk.testing.conformance.reading import UNSPILLED, Follower, Read, no_segment
from changesource_sdk.testing.conformance.trial import Trial
from changesource_sdk.testing.folding import FoldedTables, rows_of

STEPS = 8
DAY_S = 86_400.0
KILLS = 3


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a reader was: a position, what a consumer had there, and which state of the history that is.

    Watermark and commit time are those of the transaction that led there, if it gave any.
    """

    position: Position
    replica: FoldedTables
    reached: int
    watermark: str | None = None
    commit_time_ms: float | None = None


def from_every_position(trial: Trial) -> None:
    """A new adapter given any position continues right after it."""
    points = checkpoints(trial)
    for number in range(len(points)):
        continue_from(trial, points, number)


def continue_from(trial: Trial, points: Sequence[Checkpoint], number: int) -> None:
    """Let a new adapter go on from a checkpoint, as after a restart."""
    point, known = points[number], [earlier.position for earlier in points[:number]]
    after = from_text(to_text(point.position))
    encoder = TransactionEncoder(checked_schema(trial.tables), no_segment, UNSPILLED)
    follower = Follower(trial.adapter(), after, encoder, known)
    try:
        _read_all(trial, follower, Judge(trial.history, point.reached), deepcopy(point.replica))
    except Broken as broken:
        raise Broken(f"a new adapter that continues after {after!r}: {broken}") from broken


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
    """Commit times, if given, are milliseconds since 1970."""
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
    adapter = trial.adapter()
    for reader in (adapter, trial.adapter(), trial.adapter()):
        encoder = TransactionEncoder(start.encoder.schema, no_segment, UNSPILLED)
        follower = Follower(reader, start.position, encoder)
        _read_all(trial, follower, Judge(trial.history, judge.reached), deepcopy(start.replica))


def checkpoints(trial: Trial) -> list[Checkpoint]:
    """Write transaction by transaction, and note where the reader is after each."""
    trial.insert_many(3)
    start = trial.read_snapshot()
    position_is_json(start.position)
    judge, replica = Judge(trial.history), start.replica
    judge.snapshot(replica.tables)
    points = [Checkpoint(start.position, deepcopy(replica), judge.reached)]
    with Follower(trial.adapter(), start.position, start.encoder) as follower:
        for number in range(STEPS):
            given = len(follower.given)
            trial.some_transaction()
            if not follower.until(_more_than(number, follower), trial.patience):
                raise Broken(_reused(follower.given[given:], points[-1].position) or judge.missing())
            read = follower.reads[number]
            _apply(read, replica, judge)
            points.append(
                Checkpoint(read.position, deepcopy(replica), judge.reached, read.watermark, read.commit_time_ms)
            )
    return points


def _more_than(number: int, follower: Follower) -> Callable[[], bool]:
    return lambda: len(follower.reads) > number


def _reused(given: Sequence[Position], last: Position) -> str:
    """Why a transaction that came was taken for a repetition."""
    if not given:
        return ""
    return (
        f"a new transaction came with the position {given[-1]!r} after {last!r}: a position belongs to one "
        f"transaction, and positions that are integers must increase; as it is, the transaction passes for a "
        f"repetition and is lost"
    )


def _read_all(trial: Trial, follower: Follower, judge: Judge, replica: FoldedTables) -> None:
    """Follow until the consumer has all that was written."""
    taken = 0

    def caught_up() -> bool:
        nonlocal taken
        while taken < len(follower.reads):
            taken += 1
            _apply(follower.reads[taken - 1], replica, judge)
        return judge.is_caught_up

    with follower:
        if not follower.until(caught_up, trial.patience):
            raise Broken(judge.missing())


def _apply(read: Read, replica: FoldedTables, judge: Judge) -> None:
    replica.apply(read.changes)
    if read.changes:
        judge.transaction(replica.tables, set(rows_of(read.changes)), f"the transaction at position {read.position!r}")


def after_a_stop(trial: Trial) -> None:
    """A pipeline that was stopped goes on with what was written meanwhile, without a new snapshot."""
    trial.insert_many(3)
    with trial.watch() as watch:
        for round_number in range(3):
            with trial.running_into(watch):
                watch.caught_up()
                trial.some_transaction()
                watch.caught_up()
            for _ in range(round_number + 1):
                trial.some_transaction()
        with trial.running_into(watch):
            watch.caught_up()
        if watch.witness.generation != 1:
            raise Broken(
                f"{watch.witness.generation} snapshots were taken where one was enough: after a stop, changes() must "
                f"continue from the position it is given"
            )


def repeated(trial: Trial) -> None:
    """Transactions that are delivered twice, late, or again after newer ones are stored once."""
    trial.insert_many(3)
    make = trial.faults.adapter(trial.adapter, duplicate=2, reorder=1, delay=1, within=6)
    with trial.running(make) as watch:
        watch.caught_up()
        for _ in range(12):
            trial.some_transaction()
            watch.caught_up()
    trial.faults.settle()


def interrupted(trial: Trial) -> None:
    """A connection that drops, in the middle of a transaction too, costs nothing but a retry."""
    trial.insert_many(3)
    make = trial.faults.adapter(trial.adapter, drop=3, within=8)
    with trial.running(make) as watch:
        watch.caught_up()
        for _ in range(12):
            trial.some_transaction()
            watch.caught_up()
    trial.faults.settle()


def killed(trial: Trial) -> None:
    """A pipeline that is killed anywhere loses nothing and doubles nothing."""
    trial.insert_many(20)
    with trial.watch() as watch:
        for _ in range(KILLS):
            _run_and_kill(trial, watch)
            for _ in range(5):
                trial.some_transaction()
        with PipelineProcess(trial.pipeline(), watch.store.layout.root) as process:
            watch.caught_up()
            process.stop()
    trial.faults.settle()


def _run_and_kill(trial: Trial, watch: Watch) -> None:
    """Kill it while it writes its snapshot, or right after it has moved."""
    judge, spool, reached = watch.witness.judge, watch.store.layout.spool, watch.witness.judge.reached
    with PipelineProcess(trial.pipeline(), watch.store.layout.root) as process:
        if reached < 0:
            watch.until(lambda: any(spool.glob("*/part-*")), judge.missing)
        else:
            watch.until(lambda: judge.reached > reached, judge.missing)
        trial.some_transaction()
        trial.faults.kill(process.pid)
