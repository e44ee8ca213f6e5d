"""Builds a replica file from the newest snapshot and the log after it, without asking the upstream.

1. Parts of the snapshot become pieces: rows decoded and sorted, in parallel (`pieces`, `lanes`).
2. Pieces are merged into one file in key order; then the unique indexes are built (`merge`).
3. Changes of rows in the log are applied (`changes`), and the other indexes are built.

Where the log has schema changes, compaction folds it into the parts first, and step 3 has nothing to apply. Finished
pieces survive a kill: the next build with the same plan continues with them. Steps 2 and 3 are repeated.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from changesource_sdk.changelog.files.atomic_json import read_json, write_json
from changesource_sdk.changelog.files.disk import disk_errors
from changesource_sdk.changelog.reading import ranges
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.spool.parts import PartStore
from changesource_sdk.changelog.spool.snapshots import PartInfo
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.endpoint.stream.system_frames import permissions_row
from changesource_sdk.pipeline.compaction.fold import Findings
from changesource_sdk.pipeline.compaction.job import RANGE_BYTES, ReadableRange, SpoolPart, rows_at
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.encode import TableEncoder
from changesource_sdk.schema import Index, Table
from changesource_sdk.seed.changes import ChangeWriter
from changesource_sdk.seed.lanes import SeedLane
from changesource_sdk.seed.layout import column_metadata, create_index, create_table, layout_of
from changesource_sdk.seed.merge import append_pieces
from changesource_sdk.seed.pieces import PieceTask, Rows, insert_statement, plan_pieces, scratch_database, sqlite_errors
from changesource_sdk.seed.plan import Plan, SeedOptions
from changesource_sdk.seed.rows import RowDecoder
from changesource_sdk.system_tables import system_tables
from service_kit.private_files import new_folder
from service_kit.sqlite import quoted

PIECE_BYTES = 64 * 1024 * 1024
"""Frames of parts that one piece is made of, about."""

MOST_PIECES = 400
"""Each is an open file while runs that overlap are merged."""

_FOLDED = "folded.json"


@dataclass(frozen=True, slots=True)
class SeedProgress:
    """Called while a seed is built: with the rows that are to be handled, and those that were; each row counts twice,
    when it is decoded and when it is merged.
    """

    planned: Rows = lambda rows: None
    done: Rows = lambda rows: None


NO_PROGRESS = SeedProgress()


@dataclass(frozen=True, slots=True)
class BuiltFile:
    """A complete replica file without a replica version."""

    path: Path
    rows: int


@dataclass(frozen=True, slots=True)
class SeedBuild:
    """One build. `work` is its folder on this host; `base` is the folder of the snapshot."""

    log_store: LogStore
    lane: SeedLane
    options: SeedOptions
    plan: Plan
    base: Path
    work: Path
    progress: SeedProgress = NO_PROGRESS

    def run(self) -> BuiltFile:
        """Build the file and return it. Raises `SnapshotGone` if the log started over meanwhile."""
        schema = ConsumerSchema.from_json(self.plan.schema)
        self.log_store.files.fetch(self.base)
        with snapshots.reading(self.base):
            log_ranges = self._log_ranges()
            changes_schema = self._changes_schema(log_ranges)
            parts = self._folded(log_ranges, schema) if changes_schema else self._base_parts()
            tasks = self._tasks(schema, parts)
            pieces = self._pieces(tasks)
        return self._merged(schema, tasks, pieces, [] if changes_schema else log_ranges)

    def _log_ranges(self) -> list[ReadableRange]:
        with closing(self.log_store.open_log()) as log:
            cut = ranges(log, self.plan.base, self.plan.head, RANGE_BYTES)
        return [ReadableRange(self.log_store.open_log, each) for each in cut]

    def _changes_schema(self, log_ranges: Sequence[ReadableRange]) -> bool:
        if not log_ranges:
            return False
        findings = self.lane.compaction.scan(log_ranges, lambda units: None)
        return any(map(_has_schema_changes, findings))

    def _base_parts(self) -> list[SpoolPart]:
        parts = snapshots.read_manifest(self.base).parts
        return [SpoolPart(self.base, part, self.log_store.files.copy) for part in parts if part.table]

    def _folded(self, log_ranges: Sequence[ReadableRange], schema: ConsumerSchema) -> list[SpoolPart]:
        # The name is the folder's in a remote spool, too.
        directory = self.work / self.plan.remote_rows
        known = read_json(self.work / _FOLDED)
        if known is None:
            with disk_errors(directory):
                shutil.rmtree(directory, ignore_errors=True)
                new_folder(directory)
            parts = rows_at(self.log_store, self.lane.compaction, self.base, log_ranges, schema, directory)
            write_json(self.work / _FOLDED, {"parts": [asdict(part) for part in parts]}, durable=True)
        else:
            listed = known["parts"]
            assert isinstance(listed, list)
            parts = [PartInfo(**each) for each in listed]
        return [SpoolPart(directory, part, self.log_store.files.copy) for part in parts]

    def _tasks(self, schema: ConsumerSchema, parts: Sequence[SpoolPart]) -> list[PieceTask]:
        size = sum(each.part.bytes for each in parts)
        return plan_pieces(schema.tables.values(), parts, self.plan.version, max(PIECE_BYTES, size // MOST_PIECES))

    def _pieces(self, tasks: Sequence[PieceTask]) -> Path:
        """Write the pieces that are not there yet; returns the folder with all of them."""
        folder, spool = self.work / "pieces", self.log_store.files.spool
        with disk_errors(folder):
            new_folder(folder)
        store = PartStore.local(folder) if spool is None else PartStore(spool, self.plan.remote_pieces)
        finished = store.finished()
        self.progress.planned(2 * sum(task.rows for task in tasks))
        self.progress.done(sum(task.rows for task in tasks if task.file in finished))
        self.lane.write([task for task in tasks if task.file not in finished], store, self.progress.done)
        if spool is not None:
            for task in tasks:
                self.log_store.files.copy(store.folder, task.file, folder / task.file)
        return folder

    def _merged(
        self, schema: ConsumerSchema, tasks: Sequence[PieceTask], pieces: Path, log_ranges: Sequence[ReadableRange]
    ) -> BuiltFile:
        path = self.work / "replica.db"
        path.unlink(missing_ok=True)
        try:
            with sqlite_errors(path), closing(scratch_database(path)) as connection:
                connection.execute("COMMIT")
                # An index that cannot be created is rolled back, which needs a journal. It stays small: pages that
                # are appended are not in it.
                connection.execute("PRAGMA journal_mode = MEMORY")
                connection.execute("BEGIN")
                writer = _FileWriter(connection, self.options, self.plan.version, schema)
                writer.create_tables()
                writer.append(tasks, pieces, self.progress.done)
                writer.create_indexes(unique=True)
                writer.apply(log_ranges)
                writer.create_indexes(unique=False)
                rows = writer.count()
        except Exception:
            # A piece may be damaged; then the next build must not start from it again.
            shutil.rmtree(pieces, ignore_errors=True)
            raise
        return BuiltFile(path, rows)


def _has_schema_changes(findings: Findings) -> bool:
    return any(orjson.loads(payload)[1]["tag"] != "truncate" for _, payload in findings.events)


class _FileWriter:
    """Writes one replica file. The connection is in autocommit after `create_tables`."""

    def __init__(
        self, connection: sqlite3.Connection, options: SeedOptions, version: str, schema: ConsumerSchema
    ) -> None:
        self._connection = connection
        self._options = options
        self._version = version
        self._schema = schema
        missing = [t for t in system_tables(options.app_id, options.shard) if t.full_name not in schema.tables]
        self._own = ConsumerSchema.of(missing)

    def create_tables(self) -> None:
        """Create all tables, the rows that every app needs, and zero-cache's description of the columns."""
        tables: list[Table] = [*self._schema.tables.values(), *self._own.tables.values()]
        for statement in (*layout_of(self._options.release).statements(), *map(create_table, tables)):
            self._connection.execute(statement)
        self._connection.executemany(
            'INSERT INTO "_zero.column_metadata" VALUES (?, ?, ?, ?, ?, ?, ?, ?)', column_metadata(tables)
        )
        for table in self._own.tables.values():
            if table.name == "permissions":
                frame = TableEncoder(table).insert(permissions_row(self._schema, self._options.permissions))
                insert = insert_statement(table, table.full_name, self._version)
                self._connection.executemany(insert, RowDecoder(table).block(frame))
        self._connection.execute("COMMIT")

    def append(self, tasks: Sequence[PieceTask], pieces: Path, done: Callable[[int], None]) -> None:
        """Append the rows of all pieces."""
        for name, table in self._schema.tables.items():
            own = [pieces / task.file for task in tasks if task.table.full_name == name]
            append_pieces(self._connection, table, own, done)

    def create_indexes(self, *, unique: bool) -> None:
        """Create the unique indexes, or the others."""
        # The sorter merges in a second thread.
        self._connection.execute("PRAGMA threads = 2")
        self._connection.execute("PRAGMA cache_size = -131072")
        for index in (*self._schema.indexes.values(), *self._own.indexes.values()):
            if index.unique == unique:
                self._create_index(index)

    def _create_index(self, index: Index) -> None:
        try:
            self._connection.execute(create_index(index))
        except sqlite3.IntegrityError:
            self._keep_last(index)
            self._connection.execute(create_index(index))

    def _keep_last(self, index: Index) -> None:
        """Keep only the last of the rows with the same key, as if each had replaced the one before."""
        columns = ", ".join(map(quoted, index.directions))
        not_null = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in index.directions)
        latest = f"SELECT rowid AS id, max(rowid) OVER (PARTITION BY {columns}) AS last FROM {quoted(index.table)}"
        replaced = f"SELECT id FROM ({latest} WHERE {not_null}) WHERE id < last"
        self._connection.execute(f"DELETE FROM {quoted(index.table)} WHERE rowid IN ({replaced})")

    def apply(self, log_ranges: Sequence[ReadableRange]) -> None:
        """Apply the log's changes of rows."""
        writer = ChangeWriter(self._connection, self._schema.tables, self._version)
        for each in log_ranges:
            with self._transaction():
                writer.apply(each.changes())

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN")
        yield
        self._connection.execute("COMMIT")

    def count(self) -> int:
        """Count the rows of the upstream's tables."""
        tables = map(quoted, self._schema.tables)
        return sum(self._connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables)
