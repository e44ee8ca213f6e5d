"""Schema changes while the adapter runs: they arrive before the rows that need them, and lose nothing."""

from __future__ import annotations

from changesource_sdk.adapter import AddColumn, Column, CreateTable, DropColumn, Insert, Table
from changesource_sdk.testing.conformance.case import Broken
from changesource_sdk.testing.conformance.sample_rows import row
from changesource_sdk.testing.conformance.trial import Trial

ADDED = "added_note"
CREATED = "conformance_created"


def added_column(trial: Trial) -> None:
    """A column that is added is there for the rows written after it, and null in those before."""
    trial.insert_many(3)
    with trial.running() as watch:
        watch.caught_up()
        trial.commit(AddColumn(trial.name, Column(ADDED, "text")))
        for number in range(10, 14):
            trial.commit(_with_note(trial, number))
        watch.caught_up()
        trial.commit(_with_note(trial, 20))
        watch.caught_up()


def dropped_column(trial: Trial) -> None:
    """A column that is dropped is gone, and rows arrive without it."""
    trial.commit(AddColumn(trial.name, Column(ADDED, "text")))
    for number in range(1, 4):
        trial.commit(_with_note(trial, number))
    with trial.running() as watch:
        watch.caught_up()
        trial.commit(DropColumn(trial.name, ADDED))
        trial.insert_many(3, first=10)
        watch.caught_up()
        if any(ADDED in row for row in watch.witness.replica.tables[trial.name].values()):
            raise Broken(f"the column {ADDED} of {trial.name} was dropped and is still there: yield DropColumn for it")


def created_table(trial: Trial) -> None:
    """A table that is created arrives with its rows."""
    table = Table(CREATED, [Column("id", "int8", optional=False), Column("body", "text")], key=("id",))
    trial.insert_many(2)
    with trial.running() as watch:
        watch.caught_up()
        trial.commit(CreateTable(table))
        for number in range(1, 4):
            trial.commit(Insert(CREATED, row(table, number, 0)))
            trial.commit(trial.insert(10 + number))
        watch.caught_up()


def _with_note(trial: Trial, number: int) -> Insert:
    inserted = trial.insert(number)
    return Insert(inserted.table, {**inserted.row, ADDED: f"note {number}"})
