"""Keys and digests of rows. Pure.

A digest is 16 bytes of BLAKE2b over the values that travel, by column name, without nulls. So it does not change with
the order of columns, a new column that is null, or the Python type of a value (1 and 1.0 in a number column). A value
that its column does not accept is digested by its `repr`: the pipeline decides what happens to such a row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

import orjson

from changesource_sdk.adapter import Row
from changesource_sdk.contract import no_row
from changesource_sdk.errors import AdapterError, InvalidChange
from changesource_sdk.pipeline.encoding.normalize import Converter, Unsuitable, converter, to_text
from changesource_sdk.pipeline.encoding.validate import known_column
from changesource_sdk.schema import Column, Table

DIGEST_BYTES = 16
_EXACT = 2.0**53


class _DigestColumn(NamedTuple):
    """A column, how its values are converted, the Python type that needs no conversion, and whether floats do not."""

    name: str
    convert: Converter
    plain: type | None
    takes_floats: bool
    column: Column


class RowDigester:
    """Digests rows of one table. Raises `AdapterError` for a table without key: its rows cannot be compared."""

    def __init__(self, table: Table) -> None:
        if not table.key:
            raise AdapterError(
                "no-key",
                "a table without key cannot be compared with what is remembered",
                f"table {table.full_name}",
                "declare a key: columns that together are unique and never null",
            )
        self._table = table.full_name
        self._key = [_digest_column(known_column(table, name)) for name in table.key]
        self._columns = [_digest_column(column) for column in sorted(table.columns, key=lambda column: column.name)]
        # Size in bytes of what `digest` last digested; written by it, to bound batches.
        self.last_size = 0

    def key(self, row: Row) -> str:
        """The key as text: a JSON list of the values as they travel. Raises `InvalidChange` if one is missing or null
        or does not fit.
        """
        values = []
        if type(row) is not dict and not isinstance(row, Mapping):
            raise no_row(self._table, row)
        for name, convert, plain, _, column in self._key:
            value = row.get(name)
            if type(value) is not plain:
                value = self._key_value(row, convert, column)
            values.append(value)
        try:
            return orjson.dumps(values).decode()
        except TypeError:  # a lone surrogate or an integer beyond 64 bits: convert every value, which says so
            values = [self._key_value(row, column.convert, column.column) for column in self._key]
            return json.dumps(values, separators=(",", ":"))

    def key_row(self, key: str) -> Row:
        """The key columns of a key that `key` returned."""
        return dict(zip((column.name for column in self._key), orjson.loads(key), strict=True))

    def digest(self, row: Row) -> bytes:
        """The digest of a row."""
        values: dict[str, object] = {}
        get = row.get
        for name, convert, plain, takes_floats, _ in self._columns:
            value = get(name)
            if value is None:
                continue
            kind = type(value)
            if kind is not plain:
                if kind is not float or not takes_floats:
                    try:
                        value = convert(value)
                    except Unsuitable:
                        value = {"unsuitable": repr(value)}
                value = _whole(value)
            values[name] = value
        try:
            text = orjson.dumps(values)
        except TypeError:  # a lone surrogate or an integer beyond 64 bits, which the pipeline refuses
            text = repr(values).encode(errors="backslashreplace")
        self.last_size = len(text)
        return blake2b(text, digest_size=DIGEST_BYTES).digest()

    def _key_value(self, row: Row, convert: Converter, column: Column) -> object:
        where = f"table {self._table}, column {column.name} ({column.data_type})"
        value = row.get(column.name)
        if value is None:
            fix = f"give every row its key: {', '.join(each.name for each in self._key)}"
            raise InvalidChange("key-missing", "a key column is missing or null", where, fix)
        try:
            value = convert(value)
        except Unsuitable as error:
            raise InvalidChange("value-does-not-fit", error.reason, where, error.fix) from error
        return _whole(value)


def _whole(value: object) -> object:
    """A float that is an integer as an int, so that both have one digest."""
    if type(value) is float and -_EXACT < value < _EXACT and value.is_integer():
        return int(value)
    return value


def _digest_column(column: Column) -> _DigestColumn:
    convert = converter(column)
    plain: type | None = None
    if convert is to_text:
        plain = str
    elif column.kind in ("integer", "number"):
        plain = int
    elif column.kind == "boolean":
        plain = bool
    return _DigestColumn(column.name, convert, plain, column.kind == "number", column)
