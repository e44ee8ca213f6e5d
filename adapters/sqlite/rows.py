"""Stored rows of one table to the data types that consumers see.

Converts a value where nothing is lost (`types.CONVERSIONS`), and otherwise raises an error with the table, the column,
the key and a fix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from adapters.sqlite.catalog.model import TableDef
from adapters.sqlite.types import CONVERSIONS, Convert, Stored
from changesource_sdk import AdapterError, BadRow

Plan: TypeAlias = tuple[tuple[int, str, Convert], ...]

STORAGE_CLASS = {int: "INTEGER", float: "REAL", str: "TEXT", bytes: "BLOB"}


class ValueMisfit(AdapterError):
    """A stored value that does not fit its column."""


class StoredRowReader:
    """Converts stored rows of one table to the data types that consumers see.

    Makes one plan for each combination of Python types, so that a row without conversions costs one dictionary lookup.
    """

    def __init__(self, table: TableDef) -> None:
        self.table = table
        self._names = table.column_names
        # The conversions of a row, by the types of its values; filled by `row`. A table has few combinations.
        self._plans: dict[tuple[type, ...], Plan] = {}

    def rows(self, stored: Iterable[tuple[Stored, ...]]) -> Iterator[dict[str, object] | BadRow]:
        """Convert stored rows, whose values are in the order of the table's columns; `BadRow` for one that does not
        fit.
        """
        for values in stored:
            try:
                row: dict[str, object] | BadRow = self.row(values)
            except ValueMisfit as error:
                key = tuple(values[self._names.index(name)] for name in self.table.key)
                row = self.bad_row(key, error)
            yield row

    def bad_row(self, key: tuple[Stored, ...], error: ValueMisfit) -> BadRow:
        """The change in place of a row that does not fit, by the values of its key."""
        try:
            named = self.key(key)
        except ValueError:
            # Its key is at fault; no consumer has a row under it.
            named = dict(zip(self.table.key, key, strict=True))
        return BadRow(self.table.name, named, None, error)

    def row(self, values: tuple[Stored, ...]) -> dict[str, object]:
        """Convert one stored row. Raises `ValueMisfit` for a value that does not fit its column."""
        kinds = tuple(map(type, values))
        plan = self._plans.get(kinds)
        if plan is None:
            plan = self._plans[kinds] = self._plan(kinds, values)
        # No `strict=True`, for speed: the lengths were compared when the plan was made.
        row: dict[str, object] = dict(zip(self._names, values))  # noqa: B905
        return self._converted(row, plan, values) if plan else row

    def key(self, stored: tuple[Stored, ...]) -> dict[str, object]:
        """Convert the values of a recorded key."""
        types = {column.name: column.data_type for column in self.table.columns}
        key: dict[str, object] = {}
        for name, value in zip(self.table.key, stored, strict=True):
            convert = CONVERSIONS.get((types[name], type(value)))
            key[name] = convert(value) if convert else value
        return key

    def _plan(self, kinds: tuple[type, ...], values: tuple[Stored, ...]) -> Plan:
        plan = []
        for number, (kind, column) in enumerate(zip(kinds, self.table.columns, strict=True)):
            if kind is type(None):
                continue
            if (column.data_type, kind) not in CONVERSIONS:
                raise self._refusal(number, values, f"holds {STORAGE_CLASS[kind]} where {column.data_type} belongs")
            convert = CONVERSIONS[column.data_type, kind]
            if convert is not None:
                plan.append((number, column.name, convert))
        return tuple(plan)

    def _converted(self, row: dict[str, object], plan: Plan, values: tuple[Stored, ...]) -> dict[str, object]:
        number = 0
        try:
            for number, name, convert in plan:
                row[name] = convert(values[number])
        except ValueError as error:
            raise self._refusal(number, values, str(error)) from error
        return row

    def _refusal(self, number: int, values: tuple[Stored, ...], what: str) -> ValueMisfit:
        names = self._names
        key = ", ".join(f"{name}={values[names.index(name)]!r}" for name in self.table.key)
        column = names[number]
        return ValueMisfit(
            "value-does-not-fit",
            f"column {column} of table {self.table.name} {what}, in the row with {key}",
            where=f"table {self.table.name}, column {column}",
            fix=f"correct the value, rebuild the table with a type for {column} that suits it, or exclude the table",
        )
