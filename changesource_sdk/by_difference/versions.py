"""What is remembered of the tables at one version: their declarations, cursors, and when they were last listed whole.

A version's number names it for people; its token is random, so that a position of another file, or of the same file
before it was restored from a copy, never passes for one of this file.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import orjson

from changesource_sdk.positions import Position
from changesource_sdk.schema import Column, Index, Table


@dataclass(frozen=True, slots=True)
class RememberedTable:
    """A table in the digest file. `id` is in the table's digests, and changes when all its rows are sent again.

    `cursor` is what the author's listing left for `changed_since`, or None; `listed_at` (epoch seconds) is when its
    last complete listing began.
    """

    id: int
    table: Table
    cursor: Position = None
    listed_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Version:
    """One state of the digests, by `number` in this file and by `token` in positions."""

    number: int
    token: str
    tables: tuple[RememberedTable, ...]


def new_token(number: int) -> str:
    """A token that was never used before."""
    return f"{number}-{secrets.token_hex(8)}"


def without_defaults(tables: Iterable[Table]) -> list[Table]:
    """The tables as they are remembered: a column's default matters only at the moment the column is added."""
    return [
        replace(table, columns=[replace(column, default=None, default_sql=None) for column in table.columns])
        for table in tables
    ]


def to_json(tables: Sequence[RememberedTable]) -> str:
    """Text that `from_json` reads back."""
    return orjson.dumps([asdict(each) for each in tables]).decode()


def from_json(text: str) -> tuple[RememberedTable, ...]:
    """The tables that `to_json` wrote."""
    return tuple(RememberedTable(**{**each, "table": _table(each["table"])}) for each in orjson.loads(text))


def _table(fields: dict[str, Any]) -> Table:
    indexes = [Index(**{**index, "columns": list(map(_index_column, index["columns"]))}) for index in fields["indexes"]]
    columns = [Column(**column) for column in fields["columns"]]
    return Table(**{**fields, "columns": columns, "indexes": indexes})


def _index_column(column: str | list[str]) -> object:
    """A name, or a pair of name and direction, which JSON has as a list."""
    return column if isinstance(column, str) else tuple(column)
