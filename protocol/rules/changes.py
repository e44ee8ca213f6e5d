"""Whether a replica can apply a change, and whether the change means what its sender thinks.

zero-cache stores and acknowledges a change before it applies it; one that cannot be applied then stops it at every
start until it is reset. `problems` finds such changes, and those that are applied but lose or duplicate rows.
"""

from collections.abc import Iterator

from protocol import changes as wire
from protocol.data_types import misfit
from protocol.messages import JsonMode
from protocol.rules.replica import CheckedReplica, CheckedTable
from protocol.specs import (
    RESERVED_TABLES,
    VERSION_COLUMN,
    Column,
    ColumnSpec,
    IndexSpec,
    JsonObject,
    Relation,
    understood_default,
)
from protocol.stream.order import Problem


def problems(replica: CheckedReplica, change: wire.Change, json_mode: JsonMode) -> Iterator[Problem]:
    """The rules that `change` breaks on this replica."""
    match change:
        case wire.Insert() | wire.Update() | wire.Delete():
            yield from _row_problems(replica, change, json_mode)
        case wire.Truncate():
            for relation in change.relations:
                yield from _unknown_table(replica, relation.replica_name)
        case wire.CreateTable():
            yield from _create_table_problems(replica, change)
        case wire.RenameTable():
            yield from _unknown_table(replica, change.old.replica_name)
            yield from _taken_name(replica, change.new.replica_name, "table-exists")
            yield from _reserved_name(change.new.replica_name)
        case wire.UpdateTableMetadata():
            yield from _unknown_table(replica, change.table.replica_name)
        case wire.AddColumn() | wire.UpdateColumn() | wire.DropColumn():
            yield from _column_change_problems(replica, change)
        case wire.CreateIndex():
            yield from _index_problems(replica, change.spec)
        case wire.Backfill() | wire.BackfillCompleted():
            yield Problem("backfill", f"{change.tag} of {change.relation.replica_name}")
        case _:
            return


def _row_problems(replica: CheckedReplica, change: wire.SingleRowChange, json_mode: JsonMode) -> Iterator[Problem]:
    name = change.relation.replica_name
    table = replica.tables.get(name)
    if table is None:
        yield from _unknown_table(replica, name)
        return
    yield from _key_problems(replica, change)
    for row in _rows(change):
        yield from _value_problems(name, table, row, json_mode)
    if isinstance(change, wire.Update):
        yield from _update_problems(replica, table, change)


def _rows(change: wire.SingleRowChange) -> list[JsonObject]:
    """The rows and keys that a change carries."""
    if isinstance(change, wire.Insert):
        return [change.new]
    if isinstance(change, wire.Delete):
        return [change.key]
    return [change.new] if change.key is None else [change.new, change.key]


def _key_problems(replica: CheckedReplica, change: wire.SingleRowChange) -> Iterator[Problem]:
    name, key = change.relation.replica_name, change.relation.key
    if not key.columns and not isinstance(change, wire.Insert):
        yield Problem("no-row-key", f"{change.tag} of {name}, which has no row key")
    if key.type == "full":
        return
    if key.columns and not replica.has_unique_index(name):
        yield Problem("key-index", f"{change.tag} of {name} before any unique index exists on it")
    for row in _rows(change):
        yield from _missing_key(change.relation, row)


def _missing_key(relation: Relation, row: JsonObject) -> Iterator[Problem]:
    for column in relation.key.columns:
        if row.get(column) is None:
            yield Problem("key-value", f"{relation.replica_name}: key column {column} is missing or null")


def _update_problems(replica: CheckedReplica, table: CheckedTable, change: wire.Update) -> Iterator[Problem]:
    name = change.relation.replica_name
    if absent := [column for column in table.columns if column not in change.new]:
        yield Problem("full-row", f"update of {name} without {', '.join(absent)}")
    if change.key is None and replica.has_row(change.relation, change.new) is False:
        yield Problem("old-key", f"update of {name} without its old key names a row that is not there")


def _value_problems(name: str, table: CheckedTable, row: JsonObject, json_mode: JsonMode) -> Iterator[Problem]:
    for column, value in row.items():
        spec = table.columns.get(column)
        if spec is None:
            yield Problem("unknown-column", f"{name} has no column {column}")
        elif reason := misfit(spec.value_kind, value, json_mode=json_mode):
            yield Problem("value-type", f"{name}.{column}: {reason}")


def _create_table_problems(replica: CheckedReplica, change: wire.CreateTable) -> Iterator[Problem]:
    name = change.spec.replica_name
    yield from _taken_name(replica, name, "table-exists")
    yield from _reserved_name(name)
    for column, spec in change.spec.columns.items():
        yield from _column_problems(name, column, spec)
    if change.backfill:
        yield Problem("backfill", f"create-table of {name} announces a backfill")


def _column_change_problems(replica: CheckedReplica, change: wire.ColumnChange) -> Iterator[Problem]:
    name = change.table.replica_name
    table = replica.tables.get(name)
    if table is None:
        yield from _unknown_table(replica, name)
        return
    if isinstance(change, wire.AddColumn):
        yield from _add_column_problems(name, table, change)
    elif isinstance(change, wire.UpdateColumn):
        yield from _existing_column(name, table, change.old.name)
        yield from _new_column(name, table, change.new, instead_of=change.old.name)
    else:
        yield from _existing_column(name, table, change.column)
        if any(change.column in index.columns for index in replica.indexes.of(name)):
            yield Problem("indexed-column", f"drop-column of {name}.{change.column}, which an index uses")


def _add_column_problems(name: str, table: CheckedTable, change: wire.AddColumn) -> Iterator[Problem]:
    yield from _new_column(name, table, change.column)
    if not understood_default(change.column.spec.dflt):
        yield Problem("default", f"{name}.{change.column.name}: {change.column.spec.dflt!r}")
    if change.backfill is not None:
        yield Problem("backfill", f"add-column of {name}.{change.column.name} announces a backfill")


def _new_column(name: str, table: CheckedTable, column: Column, instead_of: str | None = None) -> Iterator[Problem]:
    if column.name in table.columns and column.name != instead_of:
        yield Problem("column-exists", f"{name} has a column {column.name} already")
    yield from _column_problems(name, column.name, column.spec)


def _existing_column(name: str, table: CheckedTable, column: str) -> Iterator[Problem]:
    if column not in table.columns:
        yield Problem("unknown-column", f"{name} has no column {column}")


def _column_problems(name: str, column: str, spec: ColumnSpec) -> Iterator[Problem]:
    if column == VERSION_COLUMN:
        yield Problem("reserved-name", f"{name}.{column} is the consumer's own")
    if "|" in spec.data_type:
        yield Problem("data-type", f"{name}.{column}: {spec.data_type!r} contains |")
    if spec.data_type.endswith("[]") != spec.is_array:
        yield Problem(
            "data-type", f"{name}.{column}: an array takes a type name with [] and elemPgTypeClass, or neither"
        )


def _index_problems(replica: CheckedReplica, spec: IndexSpec) -> Iterator[Problem]:
    yield from _taken_name(replica, spec.replica_name, "index-name")
    table = replica.tables.get(spec.replica_table)
    if table is None:
        yield from _unknown_table(replica, spec.replica_table)
        return
    for column in spec.columns:
        yield from _existing_column(spec.replica_table, table, column)


def _unknown_table(replica: CheckedReplica, name: str) -> Iterator[Problem]:
    if replica.complete and name not in replica.tables:
        yield Problem("unknown-table", f"there is no table {name}")


def _taken_name(replica: CheckedReplica, name: str, rule: str) -> Iterator[Problem]:
    if name in replica.tables or name in replica.indexes:
        yield Problem(rule, f"{name} exists already")


def _reserved_name(name: str) -> Iterator[Problem]:
    if name.startswith(RESERVED_TABLES):
        yield Problem("reserved-name", f"{name} is the consumer's own")
