"""Converts rows of one table from JSON objects to SQL statements and parameters.

There is one object per table and JSON mode, replaced when the table changes its shape. The conversion is generated
code, so that the usual row (all columns present, with values the driver accepts) costs one call; other rows take a
slower way.

Contract: an insert replaces any row that shares a unique key with it; an update of a missing row inserts it; a delete
of a missing row does nothing. An unknown column raises `CannotApply`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import orjson

from protocol import values
from protocol.data_types import INT64_MAX, INT64_MIN
from protocol.messages import JsonMode
from protocol.specs import VERSION_COLUMN, JsonObject
from reference_cache.replica.catalog import StoredTable
from reference_cache.replica.errors import CannotApply
from service_kit.sqlite import quoted

Parameters: TypeAlias = tuple[Any, ...]
KeyColumns: TypeAlias = tuple[str, ...] | None
"""The columns that identify a row, as the change names them; None for the table's own key."""

UNSUITABLE = (sqlite3.InterfaceError, sqlite3.ProgrammingError, OverflowError)
"""What Python's driver raises for a value of a type or size that it cannot store."""


class TableRows:
    """Statements and parameters for one table. Invariant: the parameters fit the statements."""

    def __init__(self, table: StoredTable, json_mode: JsonMode, key: tuple[str, ...] | None) -> None:
        self.table = table
        self.name = table.name
        self._key = key
        self._width = len(table.columns)
        self._is_text = json_mode == "s"
        self._json = {name for name, spec in table.columns.items() if spec.value_kind in ("json", "array")}
        self._absent = {name: _literal(text) for name, text in table.defaults.items()}
        self._usual = self._generate()
        columns = ", ".join(map(quoted, (*table.columns, VERSION_COLUMN)))
        into = f"INTO {quoted(table.name)} ({columns}) VALUES ({', '.join('?' * (self._width + 1))})"
        self.append_sql = f"INSERT {into}"
        self.insert_sql = f"INSERT OR REPLACE {into}"
        # (changed columns, key columns) -> statement; filled on demand by `_update_sql`.
        self._updates: dict[tuple[tuple[str, ...], tuple[str, ...]], str] = {}

    def _generate(self) -> Callable[[JsonObject, str], Parameters]:
        convert = "text" if self._is_text else "dump"
        parts = [f"{convert}(r[{name!r}])" if name in self._json else f"r[{name!r}]" for name in self.table.columns]
        source = f"lambda r, version: ({', '.join([*parts, 'version'])},)"
        return cast(Callable[[JsonObject, str], Parameters], eval(source, {"dump": dump, "text": text}))

    def insert(self, new: JsonObject, version: str) -> Parameters:
        """Parameters of `insert_sql`: all columns, then the version. Missing columns get their default or null."""
        if len(new) == self._width:
            try:
                return self._usual(new, version)
            except KeyError:
                pass
        self._refuse_unknown(new)
        absent = self._absent
        stored = (self._stored(name, new[name]) if name in new else absent.get(name) for name in self.table.columns)
        return (*stored, version)

    def insert_all(self, rows: Sequence[JsonObject], version: str) -> list[Parameters]:
        """`insert` for many rows."""
        if sum(map(len, rows)) == self._width * len(rows):
            usual = self._usual
            try:
                return [usual(row, version) for row in rows]
            except KeyError:
                pass
        return [self.insert(row, version) for row in rows]

    def careful(self, row: Parameters) -> Parameters:
        """The same parameters, converted for the driver; raises `CannotApply` for an integer over 64 bits."""
        return (*map(self._storable, self.table.columns, row[:-1]), row[-1])

    def update(self, key: JsonObject | None, new: JsonObject, columns: KeyColumns) -> tuple[str, Parameters]:
        """The UPDATE statement and its first parameters; append the version, then `key_values`."""
        self._refuse_unknown(new)
        names = self._key_columns(columns)
        row = new if key is None else key
        self._refuse_incomplete(names, row)
        return self._update_sql(tuple(new), names), tuple(self._stored(name, value) for name, value in new.items())

    def key_values(self, key: JsonObject, columns: KeyColumns) -> Parameters:
        """The parameters of a WHERE clause over the key columns."""
        names = self._key_columns(columns)
        self._refuse_incomplete(names, key)
        return tuple(self._stored(name, key[name]) for name in names)

    def delete_sql(self, columns: KeyColumns) -> str:
        return f"DELETE FROM {quoted(self.name)} WHERE {_equal(self._key_columns(columns), ' AND ')}"

    def _update_sql(self, names: tuple[str, ...], key: tuple[str, ...]) -> str:
        sql = self._updates.get((names, key))
        if sql is None:
            values_sql = _equal((*names, VERSION_COLUMN), ", ")
            sql = f"UPDATE OR REPLACE {quoted(self.name)} SET {values_sql} WHERE {_equal(key, ' AND ')}"
            self._updates[names, key] = sql
        return sql

    def _key_columns(self, columns: KeyColumns) -> tuple[str, ...]:
        names = self._key if columns is None else columns
        if not names:
            raise CannotApply(f"table {self.name!r} has no key, so its rows can be inserted but not changed")
        return names

    def _refuse_unknown(self, row: Mapping[str, object]) -> None:
        for name in row:
            if name not in self.table.columns:
                raise CannotApply(f"table {self.name!r} has no column {name!r}; the source must add it first")

    def _refuse_incomplete(self, names: Sequence[str], row: Mapping[str, object]) -> None:
        for name in names:
            if name not in row:
                raise CannotApply(f"a change to table {self.name!r} lacks the value of its key column {name!r}")
            if name not in self.table.columns:
                raise CannotApply(f"table {self.name!r} has no column {name!r}, which is given as its key")

    def _stored(self, name: str, value: object) -> object:
        if name in self._json:
            return text(value) if self._is_text else dump(value)
        return self._storable(name, value)

    def _storable(self, name: str, value: object) -> object:
        if isinstance(value, dict | list):
            return values.dumps(value).decode()
        if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
            raise CannotApply(f"{self.name}.{name}: the integer {value} does not fit 64 bits")
        return value


def dump(value: object) -> str | None:
    """The JSON text of a value; None for null."""
    if value is None:
        return None
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        return values.dumps(value).decode()


def text(value: object) -> str | None:
    """A JSON value that arrived as text (JSON mode "s"), unchanged; other values are dumped."""
    return value if value is None or isinstance(value, str) else values.dumps(value).decode()


def _literal(text: str) -> object:
    """The Python value of an SQL literal: a quoted text or a number."""
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    return float(text) if "." in text else int(text)


def _equal(names: Sequence[str], between: str) -> str:
    return between.join(f"{quoted(name)} = ?" for name in names)
