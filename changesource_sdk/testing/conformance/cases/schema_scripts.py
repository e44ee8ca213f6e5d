"""What the cases about schema changes write: one script for each kind of change, with rows before and after it.

A script is a list of steps; each step makes the changes of one transaction when it is its turn, since rows depend on
the columns of that moment. `prepare` runs before the pipeline starts. The names of scripts do not collide, so all of
them can be written one after another to the same store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from changesource_sdk.adapter import (
    AddColumn,
    AlterColumn,
    Change,
    Column,
    CreateTable,
    DropColumn,
    DropTable,
    Insert,
    RenameTable,
    Row,
    Table,
)
from changesource_sdk.testing.conformance.case import Broken, NotApplicable
from changesource_sdk.testing.conformance.pipeline_run import Watch
from changesource_sdk.testing.conformance.trial import Trial

Step = Callable[[Trial], Sequence[Change]]

MOVING = Table("conformance_moving", [Column("id", "int8", optional=False), Column("body", "text")])
MOVED = "conformance_moved"
AGAIN = Table("conformance_again", [Column("id", "int8", optional=False), Column("body", "text")])
AGAIN_OTHERWISE = Table(
    AGAIN.name, [Column("id", "int8", optional=False), Column("size", "int8"), Column("body", "text")]
)


@dataclass(frozen=True, slots=True)
class Script:
    """Steps that need some capabilities."""

    needs: Sequence[str]
    steps: Sequence[Step]
    prepare: Sequence[Step] = ()

    def suits(self, trial: Trial) -> bool:
        """Whether the store can do it."""
        return all(map(trial.has, self.needs))


def _changes(*changes: Change) -> Step:
    return lambda trial: changes


def _insert(number: int, **values: object) -> Step:
    return lambda trial: [trial.insert_with(number, **values)]


def _added(name: str, kind: str = "text") -> Step:
    return lambda trial: [AddColumn(trial.name, Column(name, kind))]


def _dropped(name: str) -> Step:
    return lambda trial: [DropColumn(trial.name, name)]


def _altered(old: str, new: str, kind: str = "text") -> Step:
    return lambda trial: [AlterColumn(trial.name, old, Column(new, kind))]


def _row(table: str, number: int, **values: object) -> Step:
    row: Row = {"id": number, **values}
    return _changes(Insert(table, row))


def _delete_if_possible(number: int) -> Step:
    return lambda trial: [trial.delete(number)] if trial.has("deletes") else []


def _insert_if_deletable(number: int, **values: object) -> Step:
    return lambda trial: [trial.insert_with(number, **values)] if trial.has("deletes") else []


RENAME_COLUMN = Script(
    ("add column", "rename column"),
    (
        _added("w1"),
        _insert(1001, w1="under the old name"),
        _altered("w1", "w2"),
        _insert(1002, w2="under the new name"),
    ),
)
DROP_COLUMN = Script(
    ("add column", "drop column"),
    (
        _added("gone_soon"),
        _added("stays"),
        _insert(1011, gone_soon="first", stays="second"),
        _dropped("gone_soon"),
        _insert(1012, stays="alone"),
    ),
)
SWAP_COLUMNS = Script(
    ("add column", "rename column"),
    (
        _added("left_side"),
        _added("right_side"),
        _insert(1021, left_side="left", right_side="right"),
        _altered("left_side", "aside"),
        _altered("right_side", "left_side"),
        _altered("aside", "right_side"),
        _insert(1022, left_side="was right", right_side="was left"),
    ),
)
CHANGE_TYPE = Script(
    ("add column", "change type"),
    (
        _added("kind_changes", "int8"),
        _insert_if_deletable(1031, kind_changes=7),
        _delete_if_possible(1031),
        # No row has a value in it now: what becomes of one is the store's own affair.
        _altered("kind_changes", "kind_changes"),
        _insert(1032, kind_changes="seven"),
    ),
)
REQUIRED_COLUMN = Script(
    ("required column",),
    (
        lambda trial: [AddColumn(trial.name, Column("required", "int8", optional=False, default=5))],
        _insert(1041, required=6),
    ),
)
RENAME_TABLE = Script(
    ("create table", "rename table"),
    (
        _row(MOVING.name, 2, body="under the old name"),
        _changes(RenameTable(MOVING.name, MOVED)),
        _row(MOVED, 3, body="under the new name"),
        _insert(1051),
    ),
    (_changes(CreateTable(MOVING)), _row(MOVING.name, 1, body="from the beginning")),
)
RECREATE_TABLE = Script(
    ("create table", "drop table"),
    (
        _row(AGAIN.name, 2, body="of the former table"),
        _changes(DropTable(AGAIN.name)),
        _changes(CreateTable(AGAIN_OTHERWISE)),
        _row(AGAIN.name, 3, size=4, body="of the new table"),
        _insert(1061),
    ),
    (_changes(CreateTable(AGAIN)), _row(AGAIN.name, 1, body="from the beginning")),
)
TRUNCATE = Script(("truncate",), (_insert(1071), lambda trial: [trial.truncate()], _insert(1072)))

ALL = (
    RENAME_COLUMN,
    DROP_COLUMN,
    CHANGE_TYPE,
    SWAP_COLUMNS,
    REQUIRED_COLUMN,
    RENAME_TABLE,
    RECREATE_TABLE,
    TRUNCATE,
)


def suitable(trial: Trial) -> list[Script]:
    """The scripts that the store can do."""
    scripts = [script for script in ALL if script.suits(trial)]
    if not scripts:
        raise NotApplicable("not supported by this harness: `supports` names no schema change, see SCHEMA_CHANGES")
    return scripts


def prepare(trial: Trial, scripts: Sequence[Script]) -> None:
    """A few rows, and what the scripts need before the pipeline starts."""
    trial.insert_many(3)
    for script in scripts:
        commit(trial, script.prepare)


def write(trial: Trial, scripts: Sequence[Script]) -> None:
    """All steps, each as a transaction."""
    for script in scripts:
        commit(trial, script.steps)


def write_at_once(trial: Trial, script: Script) -> None:
    """All steps of a script as one transaction. In columns that it adds, rows have the script's values or none."""
    trial.commit(*[change for step in script.steps for change in step(trial)])


def commit(trial: Trial, steps: Sequence[Step]) -> None:
    """The steps, each as a transaction; one that has nothing to do in this store is left out."""
    for step in steps:
        changes = step(trial)
        if changes:
            trial.commit(*changes)


def schema_is_the_store_s(trial: Trial, watch: Watch) -> None:
    """Consumers have the tables and columns that the store has."""
    theirs = watch.witness.schema().tables
    for name in trial.history.states[-1]:
        ours, there = trial.history.table(name), theirs.get(name)
        if there is None:
            raise Broken(f"consumers have no table {name}: yield CreateTable or RenameTable for it")
        for column in ours.columns:
            arrived = there.column(column.name)
            if arrived is None:
                raise Broken(f"consumers have no column {column.name} of {name}: yield AddColumn or AlterColumn for it")
            if arrived.kind != column.kind:
                raise Broken(
                    f"column {column.name} of {name} is {column.data_type} and consumers have it as "
                    f"{arrived.data_type}: yield AlterColumn with the new type"
                )
        for column in there.columns:
            if ours.column(column.name) is None:
                raise Broken(
                    f"the column {column.name} of {name} was dropped or renamed and is still there: yield DropColumn, "
                    f"or AlterColumn with its old name"
                )
