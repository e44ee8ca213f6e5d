"""The snapshot of all tables, and tables that it had to leave out.

A table that cannot be read does not stop the snapshot of the others. It gets a position of this module, and arrives
later in the stream, as a version with all its rows. If its columns could be read and only its keys are bad, consumers
get it without rows: a client that names a table which its cache does not have is refused. If the table does not exist
or cannot be read at all, consumers do not have it, and its arrival begins with `CreateTable`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from adapters.spark_tables.failures import Failures
from adapters.spark_tables.position import SparkTablesPosition
from adapters.spark_tables.rows.keys import UnusableKeys
from adapters.spark_tables.settings import TableSettings
from adapters.spark_tables.source import TableMissing, TablePosition, TableSnapshot, TableSource, TableVersion
from changesource_sdk import AdapterError, Change, CreateTable, DropTable, Insert, Snapshot, Table

TRIES, PAUSE_S = 3, 1.0

# Part of stored positions: do not change.
_KEY = "awaited"
_ABSENT = ""


def take_snapshot(
    tables: Sequence[TableSettings], source_of: Callable[[TableSettings], TableSource], failures: Failures
) -> Snapshot:
    """Every table at its newest version. Notes failing tables; raises only if no table can be read.

    A later process can resume it while all these versions still exist.
    """
    snapshots: list[TableSnapshot] = []
    positions: dict[str, TablePosition] = {}
    declared: list[Table] = []
    try:
        for table in tables:
            try:
                one = _snapshot_of(source_of(table))
            except AdapterError as error:
                failures.note(table, error)
                empty = [source_of(table).table()] if isinstance(error, UnusableKeys) else []
                positions[table.name] = absent_position(*empty)
                declared += empty
            else:
                snapshots.append(one)
                positions[table.name] = one.position
                declared.append(one.table)
        if not snapshots:
            raise failures.errors()[0]
    except BaseException:
        _close_all([one.close for one in snapshots if one.close is not None])
        raise
    return Snapshot(
        SparkTablesPosition(positions).to_json(tables),
        [partition for one in snapshots for partition in one.partitions],
        declared,
        close=partial(_close_all, [one.close for one in snapshots if one.close is not None]),
        can_resume=partial(_can_all_resume, [one.can_resume for one in snapshots]),
    )


def _snapshot_of(source: TableSource) -> TableSnapshot:
    """One table; an error that may be temporary is retried before the others continue without the table."""
    for _ in range(TRIES - 1):
        try:
            return source.snapshot()
        except (UnusableKeys, TableMissing):
            raise
        except AdapterError:
            time.sleep(PAUSE_S)
    return source.snapshot()


def _close_all(closing: Sequence[Callable[[], None]]) -> None:
    for close in closing:
        close()


def _can_all_resume(resuming: Sequence[Callable[[], bool]]) -> bool:
    return all(can_resume() for can_resume in resuming)


def absent_position(table: Table | None = None) -> TablePosition:
    """The position of a table that is left out; consumers have `table` without rows, or nothing."""
    return {_KEY: _ABSENT if table is None else _digest(table)}


def is_absent(position: TablePosition) -> bool:
    """Whether a position is that of a table that was left out and has not arrived."""
    return isinstance(position, dict) and _KEY in position


def arrival(source: TableSource, position: TablePosition, time_ms: float) -> TableVersion:
    """All rows of the newest version as a version of the stream; raises if the table still cannot be read."""
    table_snapshot = source.snapshot()
    known = position[_KEY] if isinstance(position, dict) else _ABSENT
    shaping: list[Change] = []
    if known != _digest(table_snapshot.table):
        shaping += [] if known == _ABSENT else [DropTable(table_snapshot.table.full_name)]
        shaping.append(CreateTable(table_snapshot.table))
    return TableVersion(table_snapshot.position, _changes(table_snapshot, shaping), time_ms)


def _changes(table_snapshot: TableSnapshot, shaping: list[Change]) -> Iterator[Change]:
    try:
        yield from shaping
        for part in table_snapshot.partitions:
            yield from (Insert(part.table, row) for row in part.rows())
    finally:
        if table_snapshot.close is not None:
            table_snapshot.close()


def _digest(table: Table) -> str:
    return hashlib.sha256(repr(table).encode()).hexdigest()[:16]
