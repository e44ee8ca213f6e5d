"""The snapshot: block ranges of every table, read in parallel under one exported snapshot.

Creating a slot gives both the position and the snapshot (`replication.slot`), so the stream continues it exactly. A
partition has an address, the name of the snapshot and a range of blocks; it opens its own connection, in any process,
and imports the snapshot. Postgres reads a block by its number, so a range costs the same wherever it starts, and tables
need no key to be split. The snapshot exists as long as the session that exported it.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from psycopg import pq
from psycopg.errors import InvalidParameterValue, OperationalError, UndefinedObject, error_from_result

from adapters.postgres.catalog.model import Catalog, TableDef
from adapters.postgres.connection import Connection, address, connect, quoted, translated_errors
from adapters.postgres.copy_json import JsonWriter, UnexpectedNull
from adapters.postgres.copy_text import CopyReader
from adapters.postgres.types import Types, decoder, used_types
from changesource_sdk import AdapterError, Row, Table

PARTS = 64
SMALLEST_PART, LARGEST_PART = 1_024, 16_384
"""Blocks in a partition: 8 to 128 MiB.

Enough partitions to occupy all tasks evenly, each large enough for a connection.
"""

BATCH_BYTES = 64 * 1024
_RELATIONS = """
SELECT c.oid::int8, n.nspname, c.relname, pg_relation_size(c.oid) / current_setting('block_size')::int8
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY(%s::oid[])"""


@dataclass(frozen=True, slots=True)
class TableRange:
    """The rows in the blocks from `first` up to `end` (None: to the last) of `relation`, which is a name as SQL.

    `absent` are columns that consumers expect and the database does not have.
    """

    dsn: str
    snapshot: str
    definition: TableDef
    types: Types
    relation: str
    first: int = 0
    end: int | None = None
    absent: tuple[str, ...] = ()

    @property
    def table(self) -> str:
        return self.definition.full_name

    def rows(self) -> Iterator[Row]:
        return self._reader().rows(self._batches())

    def rows_within(self, db: Connection) -> Iterator[Row]:
        """The rows as the open transaction of a connection sees them."""
        return self._reader().rows(copy_batches(db, f"COPY ({self.query}) TO STDOUT"))

    def json_rows(self, checked: Callable[[Row], bytes]) -> Iterator[list[bytes]]:
        """The same rows as JSON objects, in batches; `checked` validates and encodes one row."""
        own = [(column.declared(), column.type_oid) for column in self.definition.columns]
        writer = JsonWriter(own, self.types, self.absent)
        reader = self._reader()
        for batch in self._batches():
            try:
                objects = writer.objects(batch)
            except UnexpectedNull:
                objects = [checked(row) for row in reader.rows([batch])]
            yield objects

    def _reader(self) -> CopyReader:
        decoders = [decoder(column.type_oid, self.types) for column in self.definition.columns]
        return CopyReader(self.definition.column_names, decoders)

    def _batches(self) -> Iterator[bytes]:
        with translated_errors(self.dsn), closing(connect(self.dsn)) as db:
            import_snapshot(db, self.dsn, self.snapshot)
            yield from copy_batches(db, f"COPY ({self.query}) TO STDOUT")

    @property
    def query(self) -> str:
        columns = ", ".join(map(quoted, self.definition.column_names))
        conditions = [f"ctid >= '({self.first},0)'::tid"] if self.first else []
        conditions += [f"ctid < '({self.end},0)'::tid"] if self.end is not None else []
        conditions += [f"({self.definition.row_filter})"] if self.definition.row_filter else []
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {columns} FROM ONLY {self.relation}{where}"


def table_ranges(
    db: Connection,
    dsn: str,
    snapshot: str,
    catalog: Catalog,
    types: Types,
    *,
    declared: Sequence[Table] = (),
    blocks: int | None = None,
) -> list[TableRange]:
    """All rows of all tables in ranges of `blocks` (None: by the size of the database).

    `declared` are the tables as consumers see them.
    """
    stored = [oid for table in catalog.tables for oid in relations_of(table)]
    relations = {oid: (f"{quoted(schema)}.{quoted(name)}", size) for oid, schema, name, size in _relations(db, stored)}
    blocks = blocks or min(max(sum(size for _, size in relations.values()) // PARTS, SMALLEST_PART), LARGEST_PART)
    ranges: list[TableRange] = []
    expected = {table.full_name: table.column_names for table in declared}
    for table in catalog.tables:
        absent = tuple(name for name in expected.get(table.full_name, ()) if name not in table.column_names)
        used = used_types((column.type_oid for column in table.columns), types)
        for oid in relations_of(table):
            relation, size = relations[oid]
            starts = list(range(0, max(size, 1), blocks))
            # The last range is open: the table may have grown since its size was read, and the snapshot decides.
            ends = [*starts[1:], None]
            ranges += [
                TableRange(dsn, snapshot, table, used, relation, start, end, absent)
                for start, end in zip(starts, ends, strict=True)
            ]
    return ranges


def relations_of(table: TableDef) -> tuple[int, ...]:
    """The oids of the relations that have a table's rows: its partitions, or the table itself."""
    return table.partitions or (table.oid,)


def _relations(db: Connection, oids: list[int]) -> list[tuple[int, str, str, int]]:
    return [(oid, schema, name, size) for oid, schema, name, size in db.execute(_RELATIONS, [oids])]


def import_snapshot(db: Connection, dsn: str, snapshot: str) -> None:
    """Begin a transaction with the exported snapshot. Raises `AdapterError` if the snapshot no longer exists."""
    db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        db.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'".encode())
    except (InvalidParameterValue, UndefinedObject) as error:
        raise AdapterError(
            "snapshot-lost",
            f"the exported snapshot {snapshot} is gone: the session that held it has ended",
            where=address(dsn),
            fix="nothing to do: a new snapshot is taken; if it keeps happening, see the server's log",
        ) from error


def copy_batches(db: Connection, command: str, size: int = BATCH_BYTES) -> Iterator[bytes]:
    """The output of a COPY in batches of complete rows, each about `size` bytes."""
    # Rows come straight from libpq: psycopg's `Copy` costs as much per row as everything else here together.
    pgconn = db.pgconn
    pgconn.send_query(command.encode())
    _await_copy(db)
    rows: list[bytes] = []
    held = 0
    take: Callable[[int], tuple[int, memoryview]] = pgconn.get_copy_data
    while True:
        length, data = take(1)
        if length > 0:
            rows.append(bytes(data))
            held += length
            if held >= size:
                yield b"".join(rows)
                rows, held = [], 0
        elif length == 0:
            _receive(db)
        else:
            break
    if rows:
        yield b"".join(rows)
    _finish_copy(db)


def _receive(db: Connection) -> None:
    """Wait for more input from the server."""
    poll = select.poll()
    poll.register(db.pgconn.socket, select.POLLIN)
    poll.poll()
    db.pgconn.consume_input()


def _await_copy(db: Connection) -> None:
    result = _next_result(db)
    if result is not None and result.status == pq.ExecStatus.COPY_OUT:
        return
    _finish_copy(db)
    raise error_from_result(result) if result else OperationalError("the server gave no answer to COPY")


def _finish_copy(db: Connection) -> None:
    """Take the remaining results, so that the session can be used again, and raise if one is an error."""
    failed = None
    while (result := _next_result(db)) is not None:
        failed = result if result.status != pq.ExecStatus.COMMAND_OK else failed
    if failed is not None:
        raise error_from_result(failed)


def _next_result(db: Connection) -> pq.abc.PGresult | None:
    while db.pgconn.is_busy():
        _receive(db)
    return db.pgconn.get_result()
