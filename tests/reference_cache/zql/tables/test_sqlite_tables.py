"""What only the SQLite stores do: converting values, writing in batches, following a snapshot, closing cursors."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from protocol.sync.ast import Column, Literal, Ordering, Simple
from reference_cache.zql.ivm.change import add, edit, remove
from reference_cache.zql.ivm.operator import Request, StartPosition, first, nodes
from reference_cache.zql.ivm.source import Source
from reference_cache.zql.schema import Row, TableSchema, table
from reference_cache.zql.tables.followed import FollowedTable
from reference_cache.zql.tables.sqlite_codec import MOST_TEXTS, SHORT, StoredValueError, decoder
from reference_cache.zql.tables.sqlite_snapshot import SqliteSnapshot, tune
from reference_cache.zql.tables.sqlite_text import split_filter, start_sql
from tests.support.workloads.tables import create_table
from tests.support.zql.written_table import KEPT_BACK, WrittenTable, sqlite_source

THING = table("thing", {"id": "number", "name": "string?", "on": "boolean?", "data": "json?"}, unique=[["name"]])
BY_ID: Ordering = (("id", "asc"),)
ROWS: list[Row] = [(1, "one", True, {"a": [1, None]}), (2, None, None, None), (3, "three", False, "text")]


def followed_source(connection: sqlite3.Connection, table: TableSchema) -> Source:
    return Source(FollowedTable(connection, table))


def database(rows: list[Row] = ROWS) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    create_table(connection, THING, rows)
    connection.execute("CREATE UNIQUE INDEX thing_name ON thing (name)")
    return connection


def decoded(*texts: str | None) -> list[Row]:
    """Rows whose texts came from different places."""
    decode = decoder(table("thing", {"id": "string", "text": "string?"}))
    assert decode is not None
    return [decode((str(place), text and "".join(list(text)))) for place, text in enumerate(texts)]


def test_a_text_that_many_rows_have_is_in_memory_once() -> None:
    rows = decoded("a state", "another", "a state", None)
    assert rows == [("0", "a state"), ("1", "another"), ("2", "a state"), ("3", None)]
    assert rows[0][1] is rows[2][1]


def test_only_so_many_texts_are_remembered() -> None:
    rows = decoded("often", *(f"once {number}" for number in range(MOST_TEXTS)), "often", "often")
    assert rows[0][1] == rows[-2][1]
    assert rows[0][1] is not rows[-2][1]
    assert rows[-1][1] is rows[-2][1]


def test_a_long_text_is_not_searched_for_in_sqlite() -> None:
    one, other = decoded("x" * (SHORT + 1), "x" * (SHORT + 1))
    assert one[1] == other[1]
    assert one[1] is not other[1]


def test_a_table_of_keys_is_read_as_it_is() -> None:
    assert decoder(table("thing", {"id": "string"})) is None


def rows_in(source: Source, request: Request | None = None) -> list[Row]:
    connection = source.connect(BY_ID)
    try:
        return [node.row for node in nodes(connection.fetch(request or Request()))]
    finally:
        connection.destroy()


def stored(connection: sqlite3.Connection) -> list[Row]:
    return connection.execute("SELECT id, name FROM thing ORDER BY id").fetchall()


# Values


def test_booleans_json_and_nulls_come_back_as_they_went_in() -> None:
    connection = database([])
    source = sqlite_source(connection, THING)
    for row in ROWS:
        source.push(add(row))
    assert isinstance(source.store, WrittenTable)
    source.store.flush()
    found = rows_in(source)
    assert found == ROWS
    assert [type(row[2]) for row in found] == [bool, type(None), bool]
    assert connection.execute('SELECT "on", data FROM thing WHERE id = 1').fetchone() == (1, '{"a":[1,null]}')


def test_integers_beyond_the_exact_range_are_refused_by_name() -> None:
    connection = database()
    connection.execute(f"UPDATE thing SET id = {2**53} WHERE id = 3")
    with pytest.raises(StoredValueError, match=r"thing\.id"):
        rows_in(followed_source(connection, THING))
    connection.execute("UPDATE thing SET id = 1e300 WHERE id > 3")
    assert rows_in(followed_source(connection, THING))[-1][0] == 1e300


def test_text_that_is_not_json_is_refused_by_name() -> None:
    connection = database()
    connection.execute("UPDATE thing SET data = '{' WHERE id = 2")
    with pytest.raises(StoredValueError, match=r"thing\.data"):
        rows_in(followed_source(connection, THING))


def test_names_that_need_quoting_are_quoted() -> None:
    odd = table('or"der', {"id": "string", "group by": "number?"})
    connection = sqlite3.connect(":memory:", isolation_level=None)
    create_table(connection, odd, [("a", 1)])
    source = sqlite_source(connection, odd)
    source.push(edit(("a", 2), ("a", 1)))
    found = source.connect((("group by", "asc"), ("id", "asc"))).fetch(Request(("group by",), 2))
    assert [node.row for node in nodes(found)] == [("a", 2)]


# Text


def test_what_sqlite_would_judge_differently_is_left_to_the_caller() -> None:
    def split(op: Any, column: str, value: Any) -> tuple[bool, bool]:
        text, rest = split_filter(Simple(op, Column(column), Literal(value)), THING)
        return text is not None, rest is not None

    assert split("=", "name", "x") == (True, False)
    assert split("=", "id", "1") == (False, True)
    assert split("=", "on", 1) == (False, True)
    assert split("=", "on", True) == (True, False)
    assert split("LIKE", "name", "x%") == (False, True)
    assert split("IS", "data", None) == (False, True)
    assert split("NOT IN", "name", ()) == (True, False)


def test_a_start_uses_null_aware_comparisons_only_where_nulls_can_be() -> None:
    ordering: Ordering = (("name", "desc"), ("id", "asc"))
    text, values = start_sql(StartPosition((7, "x", None, None), inclusive=True), ordering, THING, reverse=False)
    assert text == '((("name" IS NULL OR "name" < ?)) OR ("name" IS ? AND "id" > ?) OR ("name" IS ? AND "id" = ?))'
    assert values == ("x", "x", 7, "x", 7)
    text, _ = start_sql(StartPosition((7, "x", None, None), inclusive=False), BY_ID, THING, reverse=True)
    assert text == '("id" <= ? AND (("id" < ?)))'


# Writing


def test_writes_wait_and_reads_do_not_notice() -> None:
    connection = database()
    source = sqlite_source(connection, THING)
    source.push(add((4, "four", None, None)))
    source.push(remove(ROWS[0]))
    source.push(edit((2, "two", None, None), ROWS[1]))
    by_name = Request(("name",), "two")
    assert [row[0] for row in rows_in(source, by_name)] == [2]
    assert stored(connection) == [(1, "one"), (2, None), (3, "three")]
    assert isinstance(source.store, WrittenTable)
    source.store.flush()
    assert stored(connection) == [(2, "two"), (3, "three"), (4, "four")]
    assert [row[0] for row in rows_in(source, by_name)] == [2]


def test_a_whole_scan_writes_first() -> None:
    connection = database()
    source = sqlite_source(connection, THING)
    source.push(remove(ROWS[1]))
    assert [row[0] for row in rows_in(source)] == [1, 3]
    assert stored(connection) == [(1, "one"), (3, "three")]


def test_many_writes_do_not_gather_for_ever() -> None:
    connection = database([])
    source = sqlite_source(connection, THING)
    for number in range(KEPT_BACK + 1):
        source.push(add((number, None, None, None)))
    assert len(stored(connection)) == KEPT_BACK + 1


def test_a_row_added_and_removed_between_two_writes_leaves_nothing() -> None:
    connection = database()
    source = sqlite_source(connection, THING)
    row = (9, "nine", None, None)
    source.push(add(row))
    source.push(remove(row))
    source.push(edit((7, "one", True, None), ROWS[0]))
    assert isinstance(source.store, WrittenTable)
    source.store.flush()
    assert stored(connection) == [(2, None), (3, "three"), (7, "one")]


def test_rows_may_exchange_the_values_of_another_unique_key() -> None:
    connection = database()
    source = sqlite_source(connection, THING)
    one, three = ROWS[0], ROWS[2]
    source.push(edit((1, "spare", *one[2:]), one))
    source.push(edit((3, "one", *three[2:]), three))
    source.push(edit((1, "three", *one[2:]), (1, "spare", *one[2:])))
    assert isinstance(source.store, WrittenTable)
    source.store.flush()
    assert stored(connection) == [(1, "three"), (2, None), (3, "one")]


# Following


def replica(path: Path) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """A replicator's connection and a reader's, on one database that allows both at once."""
    writer = sqlite3.connect(path / "replica.db", isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    create_table(writer, THING, ROWS)
    reader = sqlite3.connect(path / "replica.db", isolation_level=None)
    tune(reader)
    reader.execute("BEGIN")
    reader.execute("SELECT 1 FROM thing").fetchone()
    return writer, reader


def test_a_followed_table_shows_the_snapshot_with_what_was_pushed(tmp_path: Path) -> None:
    writer, reader = replica(tmp_path)
    source = followed_source(reader, THING)
    assert isinstance(source.store, FollowedTable)
    connection = source.connect(BY_ID)
    connection.set_output(lambda change: None)
    writer.execute("UPDATE thing SET name = 'ONE' WHERE id = 1")
    writer.execute("INSERT INTO thing (id, name) VALUES (4, 'four')")
    assert [row[1] for row in rows_in(source)] == ["one", None, "three"]
    source.push(edit((1, "ONE", *ROWS[0][2:]), ROWS[0]))
    assert [row[1] for row in rows_in(source)] == ["ONE", None, "three"]
    source.push(add((4, "four", None, None)))
    pushed = rows_in(source)
    reader.execute("COMMIT")
    reader.execute("BEGIN")
    source.store.advance()
    assert rows_in(source) == pushed
    assert [row[1] for row in pushed] == ["ONE", None, "three", "four"]
    assert source.store.touched == {}
    reader.close()
    writer.close()


def test_nothing_is_written_through_a_followed_table(tmp_path: Path) -> None:
    writer, reader = replica(tmp_path)
    reader.execute("PRAGMA query_only = ON")
    source = followed_source(reader, THING)
    source.push(remove(ROWS[1]))
    source.push(add((5, None, None, None)))
    assert [row[0] for row in rows_in(source)] == [1, 3, 5]
    assert [row[0] for row in rows_in(source, Request(reverse=True))] == [5, 3, 1]
    reader.close()
    writer.close()


# Cursors


def many() -> sqlite3.Connection:
    return database([(number, None, None, None) for number in range(1000)])


@pytest.mark.parametrize("leave", ["first", "break"])
def test_a_stream_left_early_holds_no_statement_open(leave: str) -> None:
    connection = many()
    stream = followed_source(connection, THING).connect(BY_ID).fetch(Request())
    if leave == "first":
        assert first(stream) is not None
    else:
        for _ in stream:
            break
    del stream
    connection.execute("BEGIN")
    connection.execute("COMMIT")
    connection.execute("DROP TABLE thing")


def test_an_open_stream_is_what_would_be_in_the_way() -> None:
    connection = many()
    stream = iter(followed_source(connection, THING).connect(BY_ID).fetch(Request()))
    next(stream)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        connection.execute("DROP TABLE thing")


def test_a_key_of_another_type_is_simply_not_there() -> None:
    snapshot = SqliteSnapshot(database(), THING)
    assert snapshot.get(1) == ROWS[0]
    assert snapshot.get("1") is None
