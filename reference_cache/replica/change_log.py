"""The replica's change log: what recent transactions did to each synced table, with the rows before and after.

Triggers copy the old and the new row of every change into a log table, so the log holds the actual effect of each
statement (an insert that replaced a row, a delete that matched none). The table `commits` assigns log entries to
versions; transactions that became durable together share the last one's version, because no reader sees a state in
between. A reader gets the changes between two versions on a connection that sees the later one.

Contract: the changes of a table come in the order they were made, as the query engine needs them. If tables were
truncated or changed their shape, only that is reported, because query pipelines must be reset. The log reaches back to
the version that the reader reported as read; reading from an earlier one raises `ChangesForgotten`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from reference_cache.replica.catalog import SYSTEM_PREFIX
from reference_cache.replica.errors import ChangesForgotten
from reference_cache.replica.schema import ReplicaSchema, ReplicaTable
from reference_cache.replica.stored_catalog import COMMITS, read_state
from reference_cache.zql.ivm.change import SourceChange, add, edit, remove
from reference_cache.zql.schema import Row
from reference_cache.zql.tables.sqlite_codec import Convert, decoder
from service_kit.sqlite import quoted

_INSERT, _UPDATE, _DELETE = 0, 1, 2
_TRIGGERS = ("insert", "update", "delete")


@dataclass(frozen=True, slots=True)
class Truncated:
    """The table was truncated."""


@dataclass(frozen=True, slots=True)
class SchemaChanged:
    """The table was created or dropped, or its columns or keys changed; read the schema again."""


class LoggedChange(NamedTuple):
    """One entry of the log: the version whose readers see it, the table, and what happened to it."""

    version: str
    table: str
    change: SourceChange | Truncated | SchemaChanged


@dataclass(slots=True)
class _LogSpan:
    """Consecutive log entries of one table, from seq `first`; `ends` has (last seq, version) of each version."""

    table: str
    first: int
    ends: list[tuple[int, str]]


def log_name(table: str) -> str:
    """The name of a table's log table."""
    return f"{SYSTEM_PREFIX}changes.{table}"


def create_log_sql(table: ReplicaTable) -> list[str]:
    """SQL that creates the log table and the triggers of a table."""
    names = [quoted(column) for column in table.engine_table.columns]
    new, old = ([f"{letter}{number}" for number in range(len(names))] for letter in "no")
    log = quoted(log_name(table.name))
    news, olds = (", ".join(f"{image}.{name}" for name in names) for image in ("new", "old"))
    into = {
        "insert": f"(op, {', '.join(new)}) VALUES ({_INSERT}, {news})",
        "update": f"(op, {', '.join(new + old)}) VALUES ({_UPDATE}, {news}, {olds})",
        "delete": f"(op, {', '.join(old)}) VALUES ({_DELETE}, {olds})",
    }
    return [
        f"CREATE TABLE {log} (seq INTEGER PRIMARY KEY, op, {', '.join(new + old)})",
        *(
            f"CREATE TRIGGER {_trigger(event, table.name)} AFTER {event} ON {quoted(table.name)} "
            f"BEGIN INSERT INTO {log} {into[event]}; END"
            for event in _TRIGGERS
        ),
    ]


def drop_log_sql(table: str) -> list[str]:
    """SQL that drops the triggers and the log table of a table."""
    return [*drop_triggers_sql(table), f"DROP TABLE IF EXISTS {quoted(log_name(table))}"]


def drop_triggers_sql(table: str) -> list[str]:
    """SQL that drops the triggers but keeps the log table."""
    return [f"DROP TRIGGER IF EXISTS {_trigger(event, table)}" for event in _TRIGGERS]


def _trigger(event: str, table: str) -> str:
    return quoted(f"{SYSTEM_PREFIX}{event}.{table}")


def changes_between(
    connection: sqlite3.Connection,
    schema: ReplicaSchema,
    after: str,
    upto: str,
    tables: Container[str] | None = None,
) -> Iterator[LoggedChange]:
    """The changes after version `after` up to and including `upto`, of these tables (default: all).

    `connection` must see `upto`. `schema` must have been read from it, or no `SchemaChanged` reported since. Raises
    `ChangesForgotten`.
    """
    start = read_state(connection).log_start
    if after < start:
        raise ChangesForgotten(f"changes after {after} are asked for, the log begins after {start}")
    sql = f'SELECT version, kind, "table", first, last FROM {COMMITS} WHERE version > ? AND version <= ? ORDER BY id'
    entries = connection.execute(sql, (after, upto)).fetchall()
    resets = [entry for entry in entries if entry[1] != "rows"]
    if resets:
        return iter([LoggedChange(version, table, _RESETS[kind]) for version, kind, table, _, _ in resets])
    selected = entries if tables is None else [entry for entry in entries if entry[2] in tables]
    return _changes(connection, schema, selected)


_RESETS: dict[str, Truncated | SchemaChanged] = {"truncate": Truncated(), "schema": SchemaChanged()}


def _changes(connection: sqlite3.Connection, schema: ReplicaSchema, entries: list[Row]) -> Iterator[LoggedChange]:
    decoders: dict[str, Convert | None] = {}
    for span in _ranges(entries):
        table = schema.tables[span.table].engine_table
        if span.table not in decoders:
            decoders[span.table] = decoder(table)
        yield from _read(connection, span, len(table.columns), decoders[span.table])


def _ranges(entries: list[Row]) -> Iterator[_LogSpan]:
    span: _LogSpan | None = None
    for version, _, table, first, last in entries:
        if span is not None and span.table == table and span.ends[-1][0] + 1 == first:
            span.ends.append((last, version))
            continue
        if span is not None:
            yield span
        span = _LogSpan(table, first, [(last, version)])
    if span is not None:
        yield span


def _read(connection: sqlite3.Connection, span: _LogSpan, width: int, decode: Convert | None) -> Iterator[LoggedChange]:
    sql = f"SELECT * FROM {quoted(log_name(span.table))} WHERE seq BETWEEN ? AND ? ORDER BY seq"
    ends = iter(span.ends)
    end, version = next(ends)
    for entry in connection.execute(sql, (span.first, span.ends[-1][0])):
        while entry[0] > end:
            end, version = next(ends)
        yield LoggedChange(version, span.table, _change(entry, width, decode))


def _change(entry: tuple[Any, ...], width: int, decode: Convert | None) -> SourceChange:
    new, old = entry[2 : 2 + width], entry[2 + width :]
    op = entry[1]
    if op == _INSERT:
        return add(new if decode is None else decode(new))
    if op == _DELETE:
        return remove(old if decode is None else decode(old))
    return edit(new, old) if decode is None else edit(decode(new), decode(old))
