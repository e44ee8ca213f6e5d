"""What an adapter's methods give back, checked where it enters: the right kinds, or an error that says which method
gave what, and how it should look.

A wrong kind would otherwise surface as an exception from somewhere inside, naming nothing the author wrote. Values are
checked later, against their columns (`encode`, `validate`). What is done here is cheap: once per table, partition or
transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import get_args

from changesource_sdk.adapter import Change, Partition, SchemaChange, Snapshot, Transaction
from changesource_sdk.errors import AdapterError, InvalidChange
from changesource_sdk.schema import Table

CHANGES = get_args(Change)
SCHEMA_CHANGES = get_args(SchemaChange)


def checked_tables(answer: object) -> tuple[Table, ...]:
    """What `tables()` gave, if it is tables."""
    fix = 'return a list: return [Table("issue", [Column("id", str), …])]'
    if isinstance(answer, Table) or not isinstance(answer, Iterable):
        raise _wrong("tables()", f"gave {_kind(answer)} instead of a list of tables", fix)
    tables = tuple(answer)
    for table in tables:
        if not isinstance(table, Table):
            raise _wrong("tables()", f"gave {_kind(table)} in its list, which should hold tables", fix)
    return tables


def checked_snapshot(answer: object) -> Snapshot:
    """What `snapshot()` gave, if it is a snapshot of partitions."""
    fix = 'return Snapshot(position, [RowsPartition("issue", rows)]): one partition or more per table'
    if not isinstance(answer, Snapshot):
        raise _wrong("snapshot()", f"gave {_kind(answer)} instead of a Snapshot", fix)
    partitions: object = answer.partitions
    if not isinstance(partitions, Sized) or not isinstance(partitions, Iterable):
        raise _wrong("snapshot()", f"its partitions are {_kind(partitions)} instead of a list", fix)
    for partition in partitions:
        if not isinstance(partition, Partition):
            raise _wrong("snapshot()", f"one of its partitions is {_kind(partition)}, without table and rows()", fix)
    return answer


def checked_transactions(answer: object) -> Iterator[Transaction]:
    """What `changes()` gave, if it is transactions, one by one as they come."""
    fix = "yield Transaction(position, [Insert(…), …]) for each commit after the position given"
    if not isinstance(answer, Iterable):
        hint = "; did you forget to yield, or to return the iterator?" if answer is None else ""
        raise _wrong("changes()", f"gave {_kind(answer)} instead of transactions{hint}", fix)
    for transaction in answer:
        if not isinstance(transaction, Transaction):
            raise _wrong("changes()", f"gave {_kind(transaction)} instead of a Transaction", fix)
        changes: object = transaction.changes
        if isinstance(changes, CHANGES) or not isinstance(changes, Iterable):
            said = f"the changes of transaction {transaction.position!r:.60} are {_kind(changes)} instead of a list"
            raise _wrong("changes()", said, fix)
        yield transaction


def known_change(answer: object) -> None:
    """Raise unless a change is one of those there are."""
    if not isinstance(answer, CHANGES):
        names = ", ".join(kind.__name__ for kind in CHANGES if kind not in SCHEMA_CHANGES)
        raise InvalidChange(
            "not-a-change",
            f"a transaction holds {_kind(answer)}, which is no change",
            "changes()",
            f"put {names} or a schema change in its list",
        )


def no_row(table: str, answer: object) -> InvalidChange:
    """The error for something that is no row."""
    return InvalidChange(
        "not-a-row",
        f"{_kind(answer)} is given where a row is needed",
        f"table {table}",
        'give a dict of column names and values: {"id": "1", "title": "…"}',
    )


def _wrong(method: str, message: str, fix: str) -> AdapterError:
    return AdapterError("broken-contract", message, method, fix)


def _kind(value: object) -> str:
    """What something is, without what it holds: data does not belong in messages."""
    if value is None:
        return "nothing (None)"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
