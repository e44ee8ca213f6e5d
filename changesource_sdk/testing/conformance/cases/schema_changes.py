"""Schema changes while the adapter runs: they arrive before the rows that need them, and lose nothing."""

from __future__ import annotations

from changesource_sdk.adapter import AddColumn, Column, CreateTable, DropColumn, Insert, Table
from changesource_sdk.testing.conformance.cases import schema_scripts
from changesource_sdk.testing.conformance.cases.schema_scripts import Script
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
        schema_scripts.schema_is_the_store_s(trial, watch)


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


def renamed_column(trial: Trial) -> None:
    """A column that is renamed keeps its values under the new name."""
    _live(trial, schema_scripts.RENAME_COLUMN)


def changed_type(trial: Trial) -> None:
    """A column that gets another type takes values of it."""
    _live(trial, schema_scripts.CHANGE_TYPE)


def required_column(trial: Trial) -> None:
    """A column that is added as not null has its default in the rows there are."""
    _live(trial, schema_scripts.REQUIRED_COLUMN)


def renamed_table(trial: Trial) -> None:
    """A table that is renamed is there under its new name, with its rows, and not under the old."""
    _live(trial, schema_scripts.RENAME_TABLE)


def recreated_table(trial: Trial) -> None:
    """A table that is dropped is gone; created again, it has its new columns and rows and none of the former."""
    _live(trial, schema_scripts.RECREATE_TABLE)


def truncated_table(trial: Trial) -> None:
    """A table that is truncated is empty, and rows written after it are there."""
    _live(trial, schema_scripts.TRUNCATE)


def _live(trial: Trial, script: Script) -> None:
    """Write a script while the pipeline follows, step by step."""
    schema_scripts.prepare(trial, [script])
    with trial.running() as watch:
        watch.caught_up()
        for step in script.steps:
            schema_scripts.commit(trial, [step])
            watch.caught_up()
        schema_scripts.schema_is_the_store_s(trial, watch)


def _with_note(trial: Trial, number: int) -> Insert:
    return trial.insert_with(number, **{ADDED: f"note {number}"})
