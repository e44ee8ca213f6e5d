"""Tables that the snapshot had to do without, and how they arrive later: in the stream, as a version like any other.

Such a table stands in the position with a token of this module. If its columns could be read and only its keys are bad,
consumers have it, empty: a client that names a table which its cache lacks is refused as a whole. If there is no table,
or nobody can read it, consumers do not have it, and it arrives by being created.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from adapters.spark_tables.source import TableSnapshot, TableSource, TableVersion, Token
from changesource_sdk import Change, CreateTable, DropTable, Insert, Table

_AWAITED = "awaited"
_ABSENT = ""


def awaited_token(table: Table | None = None) -> Token:
    """The token of a table of which consumers have this, without rows, or nothing."""
    return {_AWAITED: _ABSENT if table is None else _digest(table)}


def is_awaited(token: Token) -> bool:
    """Whether a token stands for a table that has not arrived."""
    return isinstance(token, dict) and _AWAITED in token


def arrival(source: TableSource, token: Token, time_ms: float) -> TableVersion:
    """The whole table at its newest version; raises what still stands in the way."""
    found = source.snapshot()
    given = token[_AWAITED] if isinstance(token, dict) else _ABSENT
    shaping: list[Change] = []
    if given != _digest(found.table):
        shaping += [] if given == _ABSENT else [DropTable(found.table.full_name)]
        shaping.append(CreateTable(found.table))
    return TableVersion(found.token, _changes(found, shaping), time_ms)


def _changes(found: TableSnapshot, shaping: list[Change]) -> Iterator[Change]:
    try:
        yield from shaping
        for part in found.partitions:
            yield from (Insert(part.table, row) for row in part.rows())
    finally:
        if found.close is not None:
            found.close()


def _digest(table: Table) -> str:
    return hashlib.sha256(repr(table).encode()).hexdigest()[:16]
