"""Values: every kind arrives as it was written, and one that cannot is refused with the name of its column."""

from __future__ import annotations

from collections.abc import Mapping

from changesource_sdk.adapter import Column, Insert, Update
from changesource_sdk.testing.conformance.case import Broken, NotApplicable
from changesource_sdk.testing.conformance.judge import LenientJudge
from changesource_sdk.testing.conformance.pipeline_run import Watch
from changesource_sdk.testing.conformance.trial import Trial
from protocol.data_types import ValueKind

FAILED = "adapter-failed"
BAD_VALUES: Mapping[ValueKind, object] = {"integer": 2**63, "string": "half a pair: \ud800", "number": float("nan")}


def in_snapshots(trial: Trial) -> None:
    """Values and nulls arrive through a snapshot."""
    for row in trial.harness.samples(trial.table):
        trial.commit(Insert(trial.name, row))
    with trial.running() as watch:
        watch.caught_up()


def in_changes(trial: Trial) -> None:
    """Values and nulls arrive through changes, as new rows and as updates."""
    trial.commit(trial.insert(900))
    with trial.running() as watch:
        watch.caught_up()
        samples = trial.harness.samples(trial.table)
        for row in samples:
            trial.commit(Insert(trial.name, row))
            watch.caught_up()
        if not trial.has("updates"):
            return
        key = trial.table.key
        for number, row in enumerate(samples):
            other = samples[(number + 1) % len(samples)]
            trial.commit(Update(trial.name, {**other, **{column: row[column] for column in key}}))
            watch.caught_up()


def partly_updated(trial: Trial) -> None:
    """An update of one column leaves the others as they are."""
    columns = [column.name for column in trial.table.columns if column.name not in trial.table.key]
    columns = [name for name in columns if name in trial.row(1, 0)]
    if len(columns) < 2:
        raise NotApplicable("the table has fewer than two columns apart from its key")
    trial.commit(trial.insert(1))
    with trial.running() as watch:
        watch.caught_up()
        for version, name in enumerate(columns, start=2):
            row = trial.row(1, version)
            trial.commit(Update(trial.name, {key: row[key] for key in (*trial.table.key, name)}))
            watch.caught_up()


def bad_integers(trial: Trial) -> None:
    """An integer beyond 64 bits is refused by name."""
    _refused_by_name(trial, "integer")


def bad_texts(trial: Trial) -> None:
    """A text that is no Unicode is refused by name."""
    _refused_by_name(trial, "string")


def bad_numbers(trial: Trial) -> None:
    """NaN is refused by name."""
    _refused_by_name(trial, "number")


def _refused_by_name(trial: Trial, kind: ValueKind) -> None:
    """A value that no consumer could hold is refused with table and column; what was there before stays served."""
    written = trial.row(0, 0)
    columns = [c for c in trial.table.columns if c.kind == kind and c.name in written and c.name not in trial.table.key]
    columns = [column for column in columns if not column.data_type.startswith(("date", "time"))]
    if not columns:
        raise NotApplicable(f"the table has no column of kind {kind} apart from its key")
    trial.insert_many(3)
    with trial.running(judge=LenientJudge(trial.history)) as watch:
        watch.until(lambda: _has_row(trial, watch, 3), lambda: "the rows before the bad one did not come")
        for number, column in enumerate(columns, start=10):
            # A store that keeps its history keeps a refused row in it: nothing more can be tried then.
            if _wrote_bad_row(trial, column, number) and _was_refused(trial, watch, column, number):
                return


def _wrote_bad_row(trial: Trial, column: Column, number: int) -> bool:
    """Whether the store accepts such a value at all."""
    try:
        trial.harness.commit([Insert(trial.name, {**trial.row(number, 0), column.name: BAD_VALUES[column.kind]})])
    except Exception:
        return False
    return True


def _was_refused(trial: Trial, watch: Watch, column: Column, number: int) -> bool:
    """Whether the pipeline refused the row, naming it; False if it arrived in a form that fits."""
    watch.until(lambda: _has_row(trial, watch, number) or watch.error() is not None, lambda: _silent(column))
    error = watch.error()
    if error is None:
        return False
    if error["code"] == FAILED or column.name not in f"{error['message']} {error['where']}":
        raise Broken(
            f"a bad value in column {column.name} of {trial.name} stops the adapter with: {error['message']} "
            f"({error['where']}). Pass the value on and let the SDK refuse it, or raise an AdapterError that names the "
            f"table, the column and the fix"
        )
    if not _has_row(trial, watch, 3):
        raise Broken("the rows before the bad one are no longer served")
    return True


def _has_row(trial: Trial, watch: Watch, number: int) -> bool:
    key = trial.history.key(trial.name, trial.row(number, 0))
    return key in watch.witness.replica.tables.get(trial.name, {})


def _silent(column: Column) -> str:
    return f"a row with a bad value in column {column.name} neither came nor was refused: it was left out silently"
