"""Compaction, the pure part: rows of an old snapshot and the changes after it, folded into the rows of a new one.

Three steps, each over one part of the data, so that they can run anywhere:
1. `scan` searches a range of the log for the little that every task must know: schema changes, truncations, which
   tables were touched. From that a `SchemaHistory` is made.
2. `Sorting` turns every row and change into an item whose sort key brings together what concerns one row, in order.
3. `fold` reads sorted items and gives the rows that are left, as they are at the end.

Invariant: the result holds what a consumer's replica would hold after the old snapshot and those changes. Rows are
identified by their key; the upstream keeps other unique indexes unique, so they are not checked here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import blake2b
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

import orjson

from changesource_sdk.pipeline.compaction.history import START, Order, SchemaHistory, TableHistory, WireRow
from changesource_sdk.pipeline.encoding.rows import kept_json
from protocol.specs import replica_name

# Items are plain tuples: there is one for every row and change, and each is pickled, to a bucket's file or to a Spark
# task. Measured, named tuples take ten times as long to pickle and four times to make and to load.
SortKey: TypeAlias = tuple[int, bytes, str, int]
"""Number of the table, group of its rows, watermark and number of the change: items sort by it, and `SortKey[:2]` stay
together.
"""


class Verb(IntEnum):
    """What an item does to the row of its key."""

    PUT = 0
    MERGE = 1
    REMOVE = 2
    MOVE = 3


Item: TypeAlias = tuple[SortKey, tuple[int, bytes, bytes, bytes]]
"""Sort key, then verb, key of the row, its columns as JSON, and the former key if it moves."""


class Tie(NamedTuple):
    """The number of a table and two keys that one of its rows had: they are folded together."""

    table: int
    former: bytes
    key: bytes


_NEW = b',"new":'
_ROW_TAGS = ("insert", "update", "delete")
_SCHEMA_TAGS = ("create-table", "drop-table", "rename-table", "add-column", "update-column", "drop-column", "truncate")


@dataclass(slots=True)
class Findings:
    """What a range of the log has in addition to rows: schema changes and truncations in order, the tables with row
    changes, and the tables whose rows moved to another key, with the number of columns in the update.
    """

    events: list[tuple[Order, bytes]] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)
    moves: set[tuple[str, int]] = field(default_factory=set)


Change: TypeAlias = tuple[Order, bytes]
"""The JSON text of one `data` message, and when it happened."""


def scan(changes: Iterable[Change]) -> Findings:
    """Collect what every task must know of these changes."""
    findings = Findings()
    for order, payload in changes:
        change = orjson.loads(payload)[1]
        tag = change["tag"]
        if tag in _ROW_TAGS:
            name = _table_name(change["relation"])
            findings.touched.add(name)
            if tag == "update" and change["key"] is not None:
                findings.moves.add((name, len(change["new"])))
        elif tag in _SCHEMA_TAGS:
            findings.events.append((order, payload))
    return findings


def has_partial_moves(history: SchemaHistory, findings: Iterable[Findings]) -> bool:
    """Whether some row may have moved to another key in an update that lacks columns, which are in its old row."""
    return any(history.widths(name) != {columns} for each in findings for name, columns in each.moves)


class Sorting:
    """Makes sortable items of rows and changes. Invariant: items about one row have one group, whatever key it had."""

    def __init__(self, history: SchemaHistory, ties: Mapping[tuple[int, bytes], bytes] | None = None) -> None:
        self._history = history
        self._ties = ties or {}

    def rows(self, payloads: Iterable[bytes]) -> Iterator[Item]:
        """Items of a snapshot's rows."""
        for payload in payloads:
            yield from self._items(START, orjson.loads(payload)[1], payload)

    def changes(self, changes: Iterable[Change]) -> Iterator[Item]:
        """Items of a log's changes."""
        for order, payload in changes:
            change = orjson.loads(payload)[1]
            if change["tag"] in _ROW_TAGS:
                yield from self._items(order, change, payload)

    def ties(self, changes: Iterable[Change]) -> Iterator[Tie]:
        """The keys that moves with missing columns tie together."""
        for order, payload in changes:
            change = orjson.loads(payload)[1]
            if change["tag"] == "update" and change["key"] is not None:
                for (number, _, _, _), (verb, key, _, former) in self._items(order, change, payload):
                    if verb == Verb.MOVE:
                        yield Tie(number, former, key)

    def _items(self, order: Order, change: dict[str, Any], payload: bytes) -> Iterator[Item]:
        relation = change["relation"]
        table = self._history.at(_table_name(relation), order)
        if table is None or not table.survives(order):
            return
        columns = relation["rowKey"]["columns"]
        tag = change["tag"]
        if tag == "delete":
            key = self._key(table, columns, change["key"], order)
            yield self._item(table, order, Verb.REMOVE, key)
        elif tag == "insert":
            row = _inserted_row(payload)
            key = self._key(table, columns, change["new"], order) if columns else blake2b(row, digest_size=16).digest()
            yield self._item(table, order, Verb.PUT, key, row)
        else:
            yield from self._updated(table, columns, order, change)

    def _updated(self, table: TableHistory, columns: list[str], order: Order, change: dict[str, Any]) -> Iterator[Item]:
        new = change["new"]
        row = kept_json(new)
        key = self._key(table, columns, new, order)
        former = key if change["key"] is None else self._key(table, columns, change["key"], order)
        is_whole = len(new) == table.width_at(order)
        if former == key:
            yield self._item(table, order, Verb.PUT if is_whole else Verb.MERGE, key, row)
        elif is_whole:
            yield self._item(table, order, Verb.REMOVE, former)
            yield self._item(table, order, Verb.PUT, key, row)
        else:
            yield self._item(table, order, Verb.MOVE, key, row, former)

    def _item(
        self, table: TableHistory, order: Order, verb: Verb, key: bytes, row: bytes = b"", former: bytes = b""
    ) -> Item:
        group = self._ties.get((table.number, key), key)
        return (table.number, group, *order), (int(verb), key, row, former)

    def _key(self, table: TableHistory, columns: list[str], row: WireRow, order: Order) -> bytes:
        """The key as it is at the end: its columns may have other names and types by then, but keep their places."""
        if not table.steps:
            return kept_json([_canonical(row[name]) for name in columns])
        values = table.advance({name: row[name] for name in columns}, order)
        assert table.table is not None
        return kept_json([_canonical(values[name]) for name in table.table.key])


def _inserted_row(payload: bytes) -> bytes:
    """The text of the row itself, which ends the message: what is before it holds no such member unquoted."""
    return payload[payload.index(_NEW) + len(_NEW) : -2]


def _canonical(value: object) -> object:
    """Numbers that a replica takes for the same are spelled the same."""
    return int(value) if (isinstance(value, float) and value.is_integer()) or isinstance(value, bool) else value


def _table_name(relation: Mapping[str, str]) -> str:
    return replica_name(relation["schema"], relation["name"])


def groups_of(ties: Iterable[Tie]) -> dict[tuple[int, bytes], bytes]:
    """For every tied key, one key that stands for all that are tied to it."""
    leader: dict[tuple[int, bytes], bytes] = {}

    def find(number: int, key: bytes) -> bytes:
        while (above := leader.setdefault((number, key), key)) != key:
            key = above
        return key

    for number, first, second in ties:
        leader[number, find(number, first)] = find(number, second)
    return {(number, key): find(number, key) for number, key in list(leader)}


def fold(history: SchemaHistory, items: Iterable[Item]) -> Iterator[tuple[int, bytes]]:
    """The rows left after all items, as JSON, with the number of their table; items come sorted, in whole groups."""
    for (number, _), group in groupby(items, key=lambda item: item[0][:2]):
        table = history.numbered[number]
        assert table.table is not None
        last = _fold_group if table.table.key else _all_rows
        for order, row in last(table, group):
            if isinstance(row, bytes) and not table.steps:
                yield number, row
            else:
                current = table.advance(_parsed(row), order)
                yield number, orjson.dumps({column.name: current.get(column.name) for column in table.table.columns})


_Held: TypeAlias = tuple[Order, bytes | dict[str, object]]
"""A row as it was at a moment: whole and unread, or put together."""


def _all_rows(table: TableHistory, items: Iterable[Item]) -> Iterable[_Held]:
    """Rows of a table without key are never replaced."""
    return (((watermark, number), row) for (_, _, watermark, number), (_, _, row, _) in items)


def _fold_group(table: TableHistory, items: Iterable[Item]) -> Iterable[_Held]:
    rows: dict[bytes, _Held] = {}
    for (_, _, watermark, number), (verb, key, row, former) in items:
        order = watermark, number
        if verb == Verb.PUT:
            rows[key] = order, row
        elif verb == Verb.REMOVE:
            rows.pop(key, None)
        else:
            before = rows.pop(former if verb == Verb.MOVE else key, None)
            known = {} if before is None else table.advance(_parsed(before[1]), before[0], order)
            rows[key] = order, {**known, **orjson.loads(row)}
    return rows.values()


def _parsed(row: bytes | dict[str, object]) -> dict[str, object]:
    if isinstance(row, dict):
        return row
    parsed: dict[str, object] = orjson.loads(row)
    return parsed
