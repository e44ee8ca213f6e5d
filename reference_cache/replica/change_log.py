"""The change log: what the last transactions did to each synced table, with the rows before and after.

SQLite keeps it: triggers copy the old and the new row of every change into a table beside the one that changed, so the
log tells what really happened, whatever statement did it (an insert that replaced a row, a delete that found none).
`commits` says which entries belong to which version; transactions that became durable together share the last one's,
since no reader ever sees a state in between. A reader asks for the changes between two versions, on a connection that
sees the later one.

Contract: changes to a table come in the order they were made, as the engine takes them. Where tables were truncated or
have another shape, that alone is reported, since pipelines must start anew. The log reaches back to the version that
its reader reported as read, unless nobody reads; asking for more raises `ChangesForgotten`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

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
class Truncate:
    """The table was emptied."""


@dataclass(frozen=True, slots=True)
class SchemaChanged:
    """The table appeared, went, or has other columns or keys; read the schema anew."""


Logged: TypeAlias = tuple[str, str, SourceChange | Truncate | SchemaChanged]
"""The version that readers saw it with, table, and what happened to it."""


@dataclass(slots=True)
class _Run:
    """Consecutive log entries of one table; `ends` has the last entry of each version in it."""

    table: str
    first: int
    ends: list[tuple[int, str]]


def log_name(table: str) -> str:
    """The table that holds the log entries of a table."""
    return f"{SYSTEM_PREFIX}changes.{table}"


def log_statements(table: ReplicaTable) -> list[str]:
    """What makes SQLite log the changes of a table."""
    names = [quoted(column) for column in table.engine_table.columns]
    new, old = ([f"{letter}{place}" for place in range(len(names))] for letter in "no")
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


def unlog_statements(table: str) -> list[str]:
    """What ends the logging of a table and forgets its entries."""
    return [*quiet_statements(table), f"DROP TABLE IF EXISTS {quoted(log_name(table))}"]


def quiet_statements(table: str) -> list[str]:
    """What ends the logging of a table but keeps its entries."""
    return [f"DROP TRIGGER IF EXISTS {_trigger(event, table)}" for event in _TRIGGERS]


def _trigger(event: str, table: str) -> str:
    return quoted(f"{SYSTEM_PREFIX}{event}.{table}")


def changes_between(
    connection: sqlite3.Connection,
    schema: ReplicaSchema,
    after: str,
    upto: str,
    tables: Container[str] | None = None,
) -> Iterator[Logged]:
    """What happened after version `after` up to and including `upto`, to these tables (default all).

    `connection` sees `upto`, and `schema` was read from it or nothing was reported as changed since.
    """
    start = read_state(connection).log_start
    if after < start:
        raise ChangesForgotten(f"changes after {after} are asked for, the log begins after {start}")
    sql = f'SELECT version, kind, "table", first, last FROM {COMMITS} WHERE version > ? AND version <= ? ORDER BY id'
    entries = connection.execute(sql, (after, upto)).fetchall()
    breaks = [entry for entry in entries if entry[1] != "rows"]
    if breaks:
        return iter([(version, table, _BREAKS[kind]) for version, kind, table, _, _ in breaks])
    wanted = entries if tables is None else [entry for entry in entries if entry[2] in tables]
    return _changes(connection, schema, wanted)


_BREAKS: dict[str, Truncate | SchemaChanged] = {"truncate": Truncate(), "schema": SchemaChanged()}


def _changes(connection: sqlite3.Connection, schema: ReplicaSchema, entries: list[Row]) -> Iterator[Logged]:
    decoders: dict[str, Convert | None] = {}
    for run in _runs(entries):
        table = schema.tables[run.table].engine_table
        if run.table not in decoders:
            decoders[run.table] = decoder(table)
        yield from _read(connection, run, len(table.columns), decoders[run.table])


def _runs(entries: list[Row]) -> Iterator[_Run]:
    run: _Run | None = None
    for version, _, table, first, last in entries:
        if run is not None and run.table == table and run.ends[-1][0] + 1 == first:
            run.ends.append((last, version))
            continue
        if run is not None:
            yield run
        run = _Run(table, first, [(last, version)])
    if run is not None:
        yield run


def _read(connection: sqlite3.Connection, run: _Run, width: int, decode: Convert | None) -> Iterator[Logged]:
    sql = f"SELECT * FROM {quoted(log_name(run.table))} WHERE seq BETWEEN ? AND ? ORDER BY seq"
    ends = iter(run.ends)
    end, version = next(ends)
    for entry in connection.execute(sql, (run.first, run.ends[-1][0])):
        while entry[0] > end:
            end, version = next(ends)
        yield version, run.table, _change(entry, width, decode)


def _change(entry: tuple[Any, ...], width: int, decode: Convert | None) -> SourceChange:
    new, old = entry[2 : 2 + width], entry[2 + width :]
    op = entry[1]
    if op == _INSERT:
        return add(new if decode is None else decode(new))
    if op == _DELETE:
        return remove(old if decode is None else decode(old))
    return edit(new, old) if decode is None else edit(decode(new), decode(old))
