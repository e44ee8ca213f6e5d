"""Failures around the adapter (a damaged log, a full disk), and what the store may delete after `acknowledge`."""

from __future__ import annotations

import resource
from copy import deepcopy
from functools import partial

from changesource_sdk.adapter import Acknowledging, Position
from changesource_sdk.errors import ResyncRequired
from changesource_sdk.pipeline.snapshot.take import checked_schema
from changesource_sdk.positions import from_text, to_text
from changesource_sdk.testing.conformance.case import Broken, NotApplicable
from changesource_sdk.testing.conformance.checkpoints import adding, checkpoints, continue_from, read_all
from changesource_sdk.testing.conformance.judge import Judge
from changesource_sdk.testing.conformance.pipeline_run import PipelineProcess
from changesource_sdk.testing.conformance.reading import Follower, memory_encoder, within
from changesource_sdk.testing.conformance.trial import Trial

FORGOTTEN = (
    "after the store had lost its history; raise ResyncRequired (or position_lost(reason)) from changes() for a "
    "position that cannot be continued, and a new snapshot is taken"
)


def lost_log(trial: Trial) -> None:
    """After its log was damaged, the pipeline takes a new snapshot; consumers start over above the old watermark."""
    trial.insert_many(5)
    state = trial.folder / "state"
    with trial.running() as watch:
        watch.caught_up()
        trial.some_transaction()
        watch.caught_up()
        before = watch.witness.watermark
    trial.faults.truncate_log(state)
    trial.some_transaction()
    with trial.running() as watch:
        watch.caught_up()
        if watch.witness.watermark <= before:
            raise Broken(f"the new log is at {watch.witness.watermark}, not above the old one at {before}")
        trial.some_transaction()
        watch.caught_up()
    trial.faults.settle()


def full_disk(trial: Trial) -> None:
    """While the disk is full the pipeline reports it, and it continues by itself when there is room."""
    if not hasattr(resource, "prlimit"):
        raise NotApplicable("this system cannot limit the files of another process")
    trial.insert_many(5)
    with trial.watch() as watch, PipelineProcess(trial.pipeline(), watch) as process:
        watch.caught_up()
        make_room = trial.faults.fill_disk(process.pid)
        trial.some_transaction()
        watch.until(lambda: watch.error() is not None, lambda: "a full disk went unnoticed")
        make_room()
        watch.caught_up()
        process.stop()
    trial.faults.settle()


def acknowledging(trial: Trial) -> None:
    """After `acknowledge` nothing that follows is lost, also for a pipeline that is restarted."""
    points = checkpoints(trial)
    adapter = _acknowledging(trial)
    for number in range(0, len(points), 3):
        position = points[number].position
        within(trial.patience, "acknowledge()", partial(adapter.acknowledge, position))
        try:
            continue_from(trial, points, number)
        except Broken as broken:
            raise Broken(
                f"after acknowledge({position!r}) what follows it is gone: only what is up to that position may be "
                f"forgotten. {broken}"
            ) from broken
    with trial.running() as watch:
        for _ in range(8):
            trial.some_transaction()
            watch.caught_up()


def forgetting(trial: Trial) -> None:
    """What was acknowledged is deleted: a store that only grows fills its disk."""
    position = checkpoints(trial)[-1].position
    adapter = _acknowledging(trial)
    kept = trial.harness.retained()
    within(trial.patience, "acknowledge()", lambda: adapter.acknowledge(position))
    if trial.harness.retained() >= kept:
        raise Broken(
            f"acknowledge({position!r}) was ignored: the store keeps {trial.harness.retained()} changes, as many as "
            f"before. Everything up to that position is durable in the log and may go"
        )


def refusing_lost_positions(trial: Trial) -> None:
    """A position from before what was forgotten is refused with `ResyncRequired`; a gap would stay unnoticed."""
    if not trial.has("forget") and not _shows_what_it_keeps(trial):
        raise NotApplicable("not supported by this harness: it has neither forget() nor, with acknowledge, retained()")
    points = checkpoints(trial)
    _lose_history(trial, points[-1].position)
    trial.some_transaction()
    first = from_text(to_text(points[0].position))
    follower = Follower(trial.adapter(), first, memory_encoder(checked_schema(trial.tables)))
    judge = Judge(trial.history, points[0].reached)
    try:
        read_all(trial, follower, judge, deepcopy(points[0].replica))
    except Exception as error:
        if not isinstance(follower.error, ResyncRequired):
            raise Broken(_not_refused(first, follower.error, error)) from error


def _lose_history(trial: Trial, last: Position) -> None:
    """Make the store forget all up to a position: by `acknowledge` if that shows, else by the harness's `forget`."""
    if _shows_what_it_keeps(trial):
        kept, adapter = trial.harness.retained(), _acknowledging(trial)
        within(trial.patience, "acknowledge()", lambda: adapter.acknowledge(last))
        if trial.harness.retained() < kept:
            return
    if not trial.has("forget"):
        raise NotApplicable("nothing was forgotten; see the case forget")
    trial.harness.forget()


def _shows_what_it_keeps(trial: Trial) -> bool:
    return trial.has("acknowledge") and trial.has("retained")


def _not_refused(position: Position, raised: BaseException | None, error: Exception) -> str:
    advice = "raise ResyncRequired (or position_lost(reason)) from changes(): then a new snapshot is taken"
    if raised is not None and not isinstance(error, Broken):
        return f"changes({position!r}) cannot be continued, and raises {raised!r}, which is retried for good: {advice}"
    return (
        f"changes({position!r}) does not say that the store no longer has what follows that position; consumers would "
        f"miss it: {advice}. {error}"
    )


def reading_again_without_history(trial: Trial) -> None:
    """A store that has lost its history while the pipeline was stopped is read again, and nothing is missed."""
    trial.insert_many(3)
    with trial.watch() as watch:
        with trial.running_into(watch):
            watch.caught_up()
        for _ in range(3):
            trial.some_transaction()
        trial.harness.forget()
        trial.some_transaction()
        with trial.running_into(watch), adding(FORGOTTEN):
            watch.caught_up()
            trial.some_transaction()
            watch.caught_up()


def _acknowledging(trial: Trial) -> Acknowledging:
    adapter = trial.adapter()
    if not isinstance(adapter, Acknowledging):
        raise Broken(
            f"{trial.harness.adapter.__name__} has no acknowledge(position): add it, or declare "
            f'lacks = ("acknowledge",) if its store forgets nothing'
        )
    return adapter
