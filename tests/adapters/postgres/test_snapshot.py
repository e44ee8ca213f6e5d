from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from adapters.postgres.catalog.reading import read_catalog
from adapters.postgres.catalog.table_selection import TableSelection
from adapters.postgres.connection import Connection, connect
from adapters.postgres.snapshot import TableRange, copy_batches, import_snapshot, table_ranges
from changesource_sdk.adapter import JsonPartition
from changesource_sdk.errors import AdapterError
from changesource_sdk.pipeline.encoding.encode import TableEncoder


@contextmanager
def exported(dsn: str) -> Iterator[str]:
    with connect(dsn) as holder:
        holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        row = holder.execute("SELECT pg_export_snapshot()").fetchone()
        assert row is not None
        yield str(row[0])


def ranges(dsn: str, snapshot: str, blocks: int = 2) -> list[TableRange]:
    with connect(dsn) as db:
        import_snapshot(db, dsn, snapshot)
        found = read_catalog(db, ["p"], TableSelection())
        return table_ranges(db, dsn, snapshot, found.catalog, found.types, blocks=blocks)


def ids(parts: list[TableRange]) -> list[object]:
    return sorted(row["id"] for part in parts for row in pickle.loads(pickle.dumps(part)).rows())


def test_all_parts_together_show_the_state_at_the_export_whatever_happens_since(db: Connection, dsn: str) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, filler text)")
    db.execute("INSERT INTO t SELECT n, repeat('x', 500) FROM generate_series(1, 200) n")
    db.execute("DELETE FROM t WHERE id % 7 = 0")
    db.execute("CREATE PUBLICATION p FOR TABLE t")
    with exported(dsn) as snapshot:
        db.execute("UPDATE t SET id = id + 1000")
        db.execute("INSERT INTO t SELECT n, '' FROM generate_series(5000, 5100) n")
        parts = ranges(dsn, snapshot)
        assert len(parts) > 5
        assert ids(parts) == [n for n in range(1, 201) if n % 7]


def test_leaves_are_read_as_rows_of_their_root_and_children_are_not(db: Connection, dsn: str) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, a text) PARTITION BY RANGE (id)")
    db.execute("CREATE TABLE t1 (a text, id int PRIMARY KEY)")
    db.execute("ALTER TABLE t ATTACH PARTITION t1 FOR VALUES FROM (0) TO (10)")
    db.execute("CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (10) TO (20)")
    db.execute("CREATE TABLE parent (id int PRIMARY KEY)")
    db.execute("CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent)")
    db.execute("INSERT INTO t SELECT n, 'a' || n FROM generate_series(0, 19) n")
    db.execute("INSERT INTO parent VALUES (100); INSERT INTO child VALUES (200)")
    db.execute("CREATE PUBLICATION p FOR TABLE t, ONLY parent WITH (publish_via_partition_root = true)")
    with exported(dsn) as snapshot:
        parts = ranges(dsn, snapshot)
        assert ids(parts) == [*range(20), 100]
        assert {"id": 3, "a": "a3"} in [row for part in parts for row in part.rows()]


def test_row_filters_and_column_lists_hold(db: Connection, dsn: str) -> None:
    db.execute('CREATE TABLE t (id int PRIMARY KEY, "Kind" text, secret text)')
    db.execute("INSERT INTO t SELECT n, 'k' || n % 2, 's' FROM generate_series(1, 6) n")
    db.execute("""CREATE PUBLICATION p FOR TABLE t (id, "Kind") WHERE (id > 2 AND id % 2 = 0)""")
    with exported(dsn) as snapshot:
        rows = [row for part in ranges(dsn, snapshot) for row in part.rows()]
    assert rows == [{"id": 4, "Kind": "k0"}, {"id": 6, "Kind": "k0"}]


def test_rows_as_json_are_the_rows(db: Connection, dsn: str) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, f float8 NOT NULL, t text)")
    db.execute("INSERT INTO t VALUES (1, 1.5, NULL), (2, 'Infinity', E'a\\tb')")
    db.execute("CREATE PUBLICATION p FOR TABLE t")
    with exported(dsn) as snapshot:
        (part,) = ranges(dsn, snapshot)
        assert isinstance(part, JsonPartition)
        encoder = TableEncoder(part.definition.declared())
        written = [json.loads(text) for texts in part.json_rows(encoder.row_json) for text in texts]
        assert written == list(part.rows())


def test_a_null_that_consumers_would_not_take_is_refused_with_its_row(db: Connection, dsn: str) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, f float8 NOT NULL)")
    db.execute("INSERT INTO t VALUES (41, 1.5), (42, 'NaN')")
    db.execute("CREATE PUBLICATION p FOR TABLE t")
    with exported(dsn) as snapshot:
        (part,) = ranges(dsn, snapshot)
        with pytest.raises(AdapterError) as raised:
            list(part.json_rows(TableEncoder(part.definition.declared()).row_json))
    assert "id=42" in raised.value.where


def test_a_snapshot_whose_session_ended_is_told_as_such(db: Connection, dsn: str) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    db.execute("CREATE PUBLICATION p FOR TABLE t")
    with exported(dsn) as snapshot:
        (part,) = ranges(dsn, snapshot)
    with pytest.raises(AdapterError) as raised:
        list(part.rows())
    assert raised.value.code == "snapshot-lost"


def test_a_copy_that_fails_midway_raises(db: Connection) -> None:
    failing = "COPY (SELECT 1 / (1000 - n) FROM generate_series(1, 2000) n) TO STDOUT"
    with pytest.raises(Exception, match="division by zero"):
        list(copy_batches(db, failing, size=10))
    assert db.execute("SELECT 1").fetchone() == (1,)
