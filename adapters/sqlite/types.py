"""SQLite's declared types, and the values that are stored under them.

The declared type decides the data type that consumers see. SQLite itself accepts any value in almost any column, so
`CONVERSIONS` lists which stored values fit which type. `rows` applies it to whole rows.

Types by declared name: `BOOL…` bool · `JSON…` json · `DATE… TIME…` as the `dates` setting says · then SQLite's own
rules: `…INT…` int8 · `…CHAR… …CLOB… …TEXT…` text · `…REAL… …FLOA… …DOUB…` float8 · numeric names numeric ·
`…BLOB…`, `ANY` or nothing bytea, which is replicated but not synced to clients · any other name text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from adapters.sqlite.catalog import TableDef
from changesource_sdk import AdapterError, BadRow, JsonText

Dates: TypeAlias = Literal["text", "number"]
Stored: TypeAlias = int | float | str | bytes | None
Convert: TypeAlias = Callable[[Stored], object]

UNSYNCED = "bytea"
NUMERIC_NAMES = ("NUMERIC", "DECIMAL", "DEC", "NUMBER", "MONEY", "CURRENCY", "FIXED")


def data_type(declared: str, dates: Dates = "text") -> str:
    """The data type that consumers see for a declared type."""
    name = declared.upper().partition("(")[0].strip()
    if name.startswith("BOOL"):
        return "bool"
    if name.startswith("JSON"):
        return "json"
    if name.startswith(("DATE", "TIME")):
        return "text" if dates == "text" else "float8"
    return _by_affinity(name)


def _by_affinity(name: str) -> str:
    if "INT" in name and name != "INTERVAL":
        return "int8"
    if any(part in name for part in ("CHAR", "CLOB", "TEXT")):
        return "text"
    if name in ("", "ANY") or "BLOB" in name:
        return UNSYNCED
    if any(part in name for part in ("REAL", "FLOA", "DOUB")):
        return "float8"
    return "numeric" if name.startswith(NUMERIC_NAMES) else "text"


def _as_bool(value: Stored) -> bool:
    if value == 0 or value == 1:
        return value == 1
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError(f"{value!r} is neither true nor false")


def _json_number(value: Stored) -> JsonText:
    return JsonText(repr(value))


CONVERSIONS: dict[tuple[str, type], Convert | None] = {
    ("int8", int): None,
    ("float8", float): None,
    ("float8", int): None,
    ("numeric", int): None,
    ("numeric", float): None,
    ("bool", int): _as_bool,
    ("bool", float): _as_bool,
    ("bool", str): _as_bool,
    ("text", str): None,
    ("text", int): repr,
    ("text", float): repr,
    ("json", str): JsonText,
    ("json", int): _json_number,
    ("json", float): _json_number,
    (UNSYNCED, bytes): None,
    (UNSYNCED, str): None,
    (UNSYNCED, int): None,
    (UNSYNCED, float): None,
}
"""How to convert a stored value, by data type and Python type. None: no conversion; absent: the value is refused."""

STORAGE_CLASS = {int: "INTEGER", float: "REAL", str: "TEXT", bytes: "BLOB"}


class ValueMisfit(AdapterError):
    """A stored value that does not fit its column."""


class RowReader:
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
        """What stands for a row that does not fit, by the values of its key."""
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
