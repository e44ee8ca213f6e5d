"""Applies a table's mapping to rows: evaluates the filter, maps rows and keys. Compiled once per table.

Expressions get the row as the upstream gave it, before renaming. Spark SQL is evaluated by Spark; its results are in
the row under the names of `sql_slot`, so that this module gives the same rows in every lane.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Never

from changesource_sdk.adapter import BadRow, Row
from changesource_sdk.errors import ChangesourceError, InvalidChange
from changesource_sdk.pipeline.mapping.declare import Function, Mask, MaskName, Sql, wrong
from changesource_sdk.pipeline.mapping.table import MappedTable

Evaluate = Callable[[Row], object]
Convert = Callable[[object], object]
REDACTED = "***"
MAPPING_FAILED = "mapping-failed"
"""The code of errors about a single row; others are about the mapping and every row it gets."""


def sql_slot(key: str) -> str:
    """Return the name under which a row has the result of the SQL expression with this key of its mapping.

    It begins with a NUL character, which Postgres and SQLite allow in no column's name.
    """
    return f"\0{key}"


class _ColumnMissing(Exception):
    """An expression needs a column that the change does not have."""


class _PartOfRow(Mapping[str, object]):
    """Some columns of a row. Reading one that is missing raises `_ColumnMissing`, where a null column gives None."""

    def __init__(self, columns: Row) -> None:
        self._columns = columns

    def __getitem__(self, name: str) -> object:
        try:
            return self._columns[name]
        except KeyError:
            raise _ColumnMissing(name) from None

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


class RowMapper:
    """Maps rows of one table. Immutable: after a schema change of the table, `ChangeMapper` makes a new one."""

    def __init__(self, table: MappedTable) -> None:
        self.table = table
        self._names = frozenset(table.source.column_names)
        condition = table.mapping.filter
        self._condition = None if condition is None else self._compile("filter", condition)
        self._computed: dict[str, Evaluate] = {}
        masks: dict[str, Convert] = {}
        for name, column in table.mapping.columns.items():
            if isinstance(column.expression, Mask):
                masks[name] = _MASKS[column.expression.mask]
            else:
                self._computed[name] = self._compile(f"columns.{name}", column.expression)
        taken = [(source, target) for source, target in table.kept.items() if target not in self._computed]
        self._taken = [(source, target, masks.get(target)) for source, target in taken]
        self._key = [(source, table.kept[source], masks.get(table.kept[source])) for source in table.source.key]

    @property
    def filters(self) -> bool:
        """Whether the mapping has a filter."""
        return self._condition is not None

    def is_whole(self, row: Row) -> bool:
        """Whether the row has every column."""
        return self._names <= row.keys()

    def filled(self, row: Row) -> Row:
        """Return the row with null for missing columns; the row itself if none is missing."""
        return row if self.is_whole(row) else {**dict.fromkeys(self._names), **row}

    def passes(self, row: Row) -> bool:
        """Whether the row passes the filter; true without one. Raises `InvalidChange` if the filter fails."""
        return self._condition is None or bool(self._condition(self._image(row)))

    def row(self, row: Row) -> dict[str, object]:
        """Return the row as consumers get it, without columns that `row` does not have.

        Raises `InvalidChange` where an expression fails or needs a missing column.
        """
        mapped = {
            target: row[source] if mask is None else mask(row[source])
            for source, target, mask in self._taken
            if source in row
        }
        if self._computed:
            image = self._image(row)
            for name, evaluate in self._computed.items():
                mapped[name] = evaluate(image)
        return mapped

    def key(self, row: Row) -> dict[str, object]:
        """Return the consumers' key for a row or key of the upstream. Expressions of key columns see the key alone."""
        image = _PartOfRow({source: row[source] for source, _, _ in self._key if source in row})
        mapped = {}
        for source, target, mask in self._key:
            if target in self._computed:
                mapped[target] = self._computed[target](image)
            elif source in row:
                mapped[target] = row[source] if mask is None else mask(row[source])
        return mapped

    def rows(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows of a snapshot that pass, mapped; in place of one that cannot be mapped there is a `BadRow`."""
        for row in rows:
            if isinstance(row, BadRow):
                yield mapped_bad_row(self, row.key, row.old_key, row.error)  # type: ignore[misc]
                continue
            whole = self.filled(row)
            try:
                mapped = self.row(whole) if self.passes(whole) else None
            except InvalidChange as error:
                if error.code != MAPPING_FAILED:
                    raise
                yield mapped_bad_row(self, whole, None, error)  # type: ignore[misc]
                continue
            if mapped is not None:
                yield mapped

    def _image(self, row: Row) -> Row:
        return row if self.is_whole(row) else _PartOfRow(row)

    def _compile(self, key: str, expression: Function | Sql) -> Evaluate:
        where = f"{self.table.key}.{key}"
        function = _slot_reader(sql_slot(key), where) if isinstance(expression, Sql) else expression.load(where)
        return self._guarded(where, function)

    def _guarded(self, where: str, function: Evaluate) -> Evaluate:
        """Wrap a function: its errors become `InvalidChange` with the mapping's key and the row's key columns."""

        def evaluate(row: Row) -> object:
            try:
                return function(row)
            except _ColumnMissing as error:
                self._refuse_part(where, str(error))
            except ChangesourceError:
                raise
            except Exception as error:
                raise InvalidChange(
                    MAPPING_FAILED,
                    f"{type(error).__name__}: {error}",
                    where=f"{where}, table {self.table.source.full_name}, row {self._described(row)}",
                    fix="correct the expression; it gets every row of the table, null columns as None",
                ) from error

        return evaluate

    def _refuse_part(self, where: str, column: str) -> Never:
        raise InvalidChange(
            "mapping-needs-column",
            f"the expression needs {column}, which the change does not carry",
            where=f"{where}, table {self.table.source.full_name}",
            fix="let the upstream send whole rows (Postgres: REPLICA IDENTITY FULL), or use only columns that it sends",
        )

    def _described(self, row: Row) -> str:
        return ", ".join(f"{name}={row.get(name)!r:.60}" for name in self.table.source.key if name in row)


def mapped_bad_row(mapper: RowMapper, key: Row, old_key: Row | None, error: ChangesourceError) -> BadRow:
    """A row that cannot be read or mapped, under its key for consumers.

    A function of the key columns that fails for a row has failed for all versions of it, so no consumer has one. The
    upstream's key then only names the row, in a form that no other row can have.
    """

    def mapped(row: Row) -> Row:
        try:
            return mapper.key(row)
        except InvalidChange:
            return {mapper.table.kept[name]: ("not mapped", row.get(name)) for name in mapper.table.source.key}

    return BadRow(mapper.table.target.full_name, mapped(key), None if old_key is None else mapped(old_key), error)


def _slot_reader(slot: str, where: str) -> Evaluate:
    def read(row: Row) -> object:
        if slot in row:
            return row[slot]
        if isinstance(row, _PartOfRow):
            raise _ColumnMissing("the whole row")
        raise wrong(where, "Spark SQL is not evaluated here", "run with --runner spark, or use a function")

    return read


def _redact(value: object) -> object:
    return None if value is None else REDACTED


def _hash(value: object) -> object:
    return None if value is None else hashlib.sha256(str(value).encode()).hexdigest()


_MASKS: Mapping[MaskName, Convert] = {"null": lambda value: None, "redact": _redact, "hash": _hash}
