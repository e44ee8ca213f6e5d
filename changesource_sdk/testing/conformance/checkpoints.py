"""Reading an adapter step by step: the position after each transaction, and resuming from there.

Cases about resuming and forgetting write a few transactions, note a checkpoint after each, and let new adapters
continue from them, as the pipeline does after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass

from changesource_sdk.adapter import Position
from changesource_sdk.pipeline.snapshot.take import checked_schema
from changesource_sdk.positions import from_text, to_text
from changesource_sdk.testing.conformance.case import Broken
from changesource_sdk.testing.conformance.judge import Judge
from changesource_sdk.testing.conformance.reading import Follower, Read, memory_encoder, position_is_json
from changesource_sdk.testing.conformance.trial import Trial
from protocol.fold.rows import FoldedTables, rows_of

STEPS = 8


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A position, what a consumer had there, and which state of the history that is.

    Watermark and commit time are those of the transaction that led there, if it gave any.
    """

    position: Position
    replica: FoldedTables
    reached: int
    watermark: str | None = None
    commit_time_ms: float | None = None


def checkpoints(trial: Trial) -> list[Checkpoint]:
    """Write transaction by transaction, and note the position of the reader after each."""
    trial.insert_many(3)
    start = trial.read_snapshot()
    position_is_json(start.position)
    judge, replica = Judge(trial.history), start.replica
    judge.snapshot(replica.tables)
    points = [Checkpoint(start.position, deepcopy(replica), judge.reached)]
    with Follower(trial.adapter(), start.position, start.encoder) as follower:
        for number in range(STEPS):
            before = len(follower.positions)
            trial.some_transaction()
            if not follower.until(_more_than(number, follower), trial.patience):
                raise Broken(_reused(follower.positions[before:], points[-1].position) or judge.missing())
            read = follower.reads[number]
            _apply(read, replica, judge)
            points.append(
                Checkpoint(read.position, deepcopy(replica), judge.reached, read.watermark, read.commit_time_ms)
            )
    return points


def _more_than(number: int, follower: Follower) -> Callable[[], bool]:
    return lambda: len(follower.reads) > number


def _reused(positions: Sequence[Position], last: Position) -> str:
    """Why a transaction was taken for a repetition; empty if none was."""
    if not positions:
        return ""
    return (
        f"a new transaction came with the position {positions[-1]!r} after {last!r}: a position belongs to one "
        f"transaction, and positions that are integers must increase; as it is, the transaction passes for a "
        f"repetition and is lost"
    )


def continue_from(trial: Trial, points: Sequence[Checkpoint], number: int) -> None:
    """Let a new adapter continue from a checkpoint, as after a restart."""
    point, known = points[number], [earlier.position for earlier in points[:number]]
    after = from_text(to_text(point.position))
    encoder = memory_encoder(checked_schema(trial.tables))
    follower = Follower(trial.adapter(), after, encoder, known)
    with adding(f"in a new adapter, which is to continue after {after!r}, whatever another has read"):
        read_all(trial, follower, Judge(trial.history, point.reached), deepcopy(point.replica))


def read_all(trial: Trial, follower: Follower, judge: Judge, replica: FoldedTables) -> None:
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


@contextmanager
def adding(circumstances: str) -> Iterator[None]:
    """Add the circumstances to the message of a `Broken`."""
    try:
        yield
    except Broken as broken:
        raise Broken(f"{broken}. This was {circumstances}") from broken
