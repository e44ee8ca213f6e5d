"""Columns from Python: the annotations of a class, or the values of rows.

    @dataclass
    class Ticket:
        id: str
        title: str
        points: int | None = None

    table_of(Ticket)                      # Table("ticket", id text, title text, points int8), key id
    table_of_rows("ticket", rows)         # the same, guessed from values

Any class with annotations works: a dataclass, a NamedTuple, a TypedDict. For use in `Adapter.tables()`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from changesource_sdk.errors import InvalidSchema
from changesource_sdk.schema import PYTHON_TYPES, Column, Table

_GENERIC = {dict: dict, list: list, tuple: list, set: list, frozenset: list, Mapping: dict, Sequence: list}
"""Python's containers as JSON columns."""


def table_of(cls: type, name: str | None = None, key: Sequence[str] | str = ("id",)) -> Table:
    """A table whose columns are the annotated attributes of a class; its name is the class's, in snake case."""
    hints = get_type_hints(cls)
    columns = [column_of(attribute, annotation) for attribute, annotation in hints.items()]
    return Table(name or _snake(cls.__name__), columns, key=key)


def column_of(name: str, annotation: object) -> Column:
    """A column from an annotation: `int`, `str | None`, `list[str]`, an Enum, a `Literal` of texts."""
    inner, is_optional = _without_none(annotation)
    return Column(name, _column_type(name, inner), optional=is_optional)


def table_of_rows(name: str, rows: Iterable[Mapping[str, object]], key: Sequence[str] | str = ("id",)) -> Table:
    """A table inferred from rows: a column has the type of its values, float for int and float; nulls are ignored."""
    kinds: dict[str, set[type]] = {}
    for row in rows:
        for column, value in row.items():
            kinds.setdefault(column, set()).update(() if value is None else {_kind(type(value))})
    return Table(name, [Column(column, _common(name, column, types)) for column, types in kinds.items()], key=key)


def _without_none(annotation: object) -> tuple[object, bool]:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) not in (Union, UnionType):
        return annotation, False
    kept = tuple(member for member in get_args(annotation) if member is not NoneType)
    return (kept[0] if len(kept) == 1 else Union[kept]), len(kept) < len(get_args(annotation))  # noqa: UP007


def _column_type(name: str, annotation: object) -> type | str:
    origin = get_origin(annotation)
    if origin is Literal:
        return _common("", name, {type(value) for value in get_args(annotation)})
    if origin in (Union, UnionType):
        return _common("", name, {_class(name, member) for member in get_args(annotation)})
    return _class(name, annotation)


def _class(name: str, annotation: object) -> type:
    cls: Any = get_origin(annotation) or annotation
    if cls in (Any, object):
        return dict  # anything: a JSON value
    return _kind(cls) if isinstance(cls, type) else _refuse("", name, repr(annotation))


def _kind(cls: type) -> type:
    """The type in `PYTHON_TYPES` that stands for a class, itself if none does (`Column` then says so)."""
    if issubclass(cls, Enum):
        return str
    if cls in PYTHON_TYPES:
        return cls
    containers = [stands for container, stands in _GENERIC.items() if issubclass(cls, container)]
    bases = [base for base in cls.__mro__ if base in PYTHON_TYPES]
    return (bases or containers or [cls])[0]


def _common(table: str, column: str, kinds: set[type]) -> type:
    if not kinds:
        return str
    if len(kinds) == 1:
        return next(iter(kinds))
    if kinds == {int, float}:
        return float
    if kinds <= {dict, list}:
        return dict
    return _refuse(table, column, " and ".join(sorted(kind.__name__ for kind in kinds)))


def _refuse(table: str, column: str, name: str) -> type:
    raise InvalidSchema(
        "unknown-type",
        f"{name} stands for no column type",
        where=f"table {table}, column {column}" if table else f"column {column}",
        fix="declare the column by hand: Column(name, 'text'), or 'json' for values of several types",
    )


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
