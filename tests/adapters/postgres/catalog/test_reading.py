"""What is synced of a real database, with which key, and what users are told of the rest."""

from __future__ import annotations

import pytest

from adapters.postgres.catalog.model import TableDef
from adapters.postgres.catalog.reading import read_catalog
from adapters.postgres.catalog.table_selection import SelectedTables, TableSelection, refuse_unknown
from adapters.postgres.connection import Connection
from changesource_sdk.errors import ConfigurationError
from changesource_sdk.schema import Column


def published(
    db: Connection, *statements: str, how: str = "FOR ALL TABLES", selection: TableSelection | None = None
) -> SelectedTables:
    for statement in statements:
        db.execute(statement.encode())
    db.execute(f"CREATE PUBLICATION p {how}".encode())
    return read_catalog(db, ["p"], selection or TableSelection())


def only_table(found: SelectedTables) -> TableDef:
    (table,) = found.catalog.tables
    return table


def test_a_table_is_told_with_its_key_and_plain_indexes(db: Connection) -> None:
    found = published(
        db,
        "CREATE TABLE t (b text NOT NULL, a int NOT NULL, c int, PRIMARY KEY (a, b))",
        "CREATE UNIQUE INDEX t_c ON t (c) INCLUDE (b)",
        "CREATE INDEX t_ca ON t (c DESC, a)",
        "CREATE INDEX t_partial ON t (c) WHERE c > 0",
        "CREATE INDEX t_expression ON t ((c + 1))",
    )
    table = only_table(found).declared()
    assert table.key == ("a", "b")
    assert [(i.name, i.directions, i.unique) for i in table.indexes] == [
        ("t_c", {"c": "ASC"}, True),
        ("t_ca", {"c": "DESC", "a": "ASC"}, False),
    ]
    assert found.notes == ()


def test_schemas_and_mixed_case_names_are_kept(db: Connection) -> None:
    found = published(
        db, 'CREATE SCHEMA "Shop"', 'CREATE TABLE "Shop"."OrderLine" ("Id" int PRIMARY KEY, "größe in cm" int)'
    )
    assert only_table(found).full_name == "Shop.OrderLine"
    assert only_table(found).column_names == ("Id", "größe in cm")


@pytest.mark.parametrize(
    ("identity", "key"),
    [("DEFAULT", ("id",)), ("FULL", ("id",)), ("USING INDEX t_other", ("other",)), ("NOTHING", ("id",))],
)
def test_the_key_follows_the_replica_identity(db: Connection, identity: str, key: tuple[str, ...]) -> None:
    found = published(
        db,
        "CREATE TABLE t (id int PRIMARY KEY, other int NOT NULL)",
        "CREATE UNIQUE INDEX t_other ON t (other)",
        f"ALTER TABLE t REPLICA IDENTITY {identity}",
    )
    assert only_table(found).key == key


def test_a_table_without_identity_is_synced_with_a_warning_that_names_the_fix(db: Connection) -> None:
    found = published(db, "CREATE TABLE t (a int NOT NULL UNIQUE)", "CREATE TABLE u (a int)")
    assert [table.key for table in found.catalog.tables] == [("a",), ()]
    notes = dict(found.notes)
    assert 'REPLICA IDENTITY USING INDEX "t_a_key"' in notes["table t"]
    assert 'ALTER TABLE "public"."u" ADD PRIMARY KEY' in notes["table u"]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE t (a int); ALTER TABLE t REPLICA IDENTITY FULL",
        "CREATE TABLE t (a bytea PRIMARY KEY)",
        "CREATE TABLE t (a int PRIMARY KEY DEFERRABLE)",
        'CREATE TABLE "with space" (a int PRIMARY KEY)',
        "CREATE TABLE t (a bytea, b point)",
        "CREATE TABLE sqlite_t (a int PRIMARY KEY)",
    ],
)
def test_a_table_that_cannot_be_synced_is_skipped_with_a_reason(db: Connection, statement: str) -> None:
    found = published(db, statement, "CREATE TABLE good (id int PRIMARY KEY)")
    assert only_table(found).full_name == "good"
    ((where, reason),) = [note for note in found.notes if note[0].startswith("table")]
    assert "good" not in where
    assert "not synced: " in reason


def test_columns_that_cannot_be_synced_are_left_out_and_reported(db: Connection) -> None:
    found = published(
        db,
        'CREATE TABLE t (id int PRIMARY KEY, a bytea, b point, c interval, "ID" int, "_0_version" text, '
        "g int GENERATED ALWAYS AS (id) STORED)",
    )
    assert only_table(found).column_names == ("id",)
    assert {where for where, _ in found.notes} == {
        f"column t.{name}" for name in ("a", "b", "c", "ID", "_0_version", "g")
    }


def test_tables_that_differ_only_in_case_are_told_apart_for_the_user(db: Connection) -> None:
    found = published(db, "CREATE TABLE t (id int PRIMARY KEY)", 'CREATE TABLE "T" (id int PRIMARY KEY)')
    assert len(found.catalog.tables) == 1
    assert "in other case" in found.notes[0][1]


def test_indexes_that_would_clash_or_merge_rows_are_weakened(db: Connection) -> None:
    found = published(
        db,
        "CREATE TABLE t (id int PRIMARY KEY, a int UNIQUE DEFERRABLE, b numeric UNIQUE, c bytea UNIQUE)",
        'CREATE INDEX "T" ON t (a)',
    )
    assert [(index.name, index.unique) for index in only_table(found).indexes] == [
        ("t_a_key", False),
        ("t_b_key", False),
    ]


def test_column_lists_and_row_filters_of_publications_hold(db: Connection) -> None:
    found = published(
        db, "CREATE TABLE t (id int PRIMARY KEY, a text, b text)", how="FOR TABLE t (id, b) WHERE (id > 7)"
    )
    assert only_table(found).column_names == ("id", "b")
    assert only_table(found).row_filter == "((id > 7))"


def test_a_row_is_published_if_any_publication_lets_it_pass(db: Connection) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    for name, where in (("a", " WHERE (id > 7)"), ("b", " WHERE (id < 3)"), ("c", "")):
        db.execute(f"CREATE PUBLICATION {name} FOR TABLE t{where}".encode())
    assert only_table(read_catalog(db, ["a", "b"], TableSelection())).row_filter == "((id > 7)) OR ((id < 3))"
    assert only_table(read_catalog(db, ["a", "b", "c"], TableSelection())).row_filter is None


def test_publications_that_list_different_columns_cannot_be_followed_together(db: Connection) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, a int)")
    db.execute("CREATE PUBLICATION a FOR TABLE t (id)")
    db.execute("CREATE PUBLICATION b FOR TABLE t")
    found = read_catalog(db, ["a", "b"], TableSelection())
    assert found.catalog.tables == ()
    assert "same column list" in found.notes[0][1]


def test_a_partitioned_table_is_one_table_with_the_rows_of_its_leaves(db: Connection) -> None:
    found = published(
        db,
        "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (10) TO (30) PARTITION BY RANGE (id)",
        "CREATE TABLE t21 PARTITION OF t2 FOR VALUES FROM (10) TO (20)",
        how="FOR ALL TABLES WITH (publish_via_partition_root = true)",
    )
    table = only_table(found)
    leaves = {
        name for (name,) in db.execute("SELECT relname FROM pg_class WHERE oid = ANY(%s)", [list(table.partitions)])
    }
    assert (table.full_name, leaves) == ("t", {"t1", "t21"})


def test_without_the_root_every_leaf_is_a_table(db: Connection) -> None:
    found = published(
        db,
        "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10)",
    )
    assert only_table(found).full_name == "t1"


def test_the_user_chooses_among_what_is_published(db: Connection) -> None:
    tables = [f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in ("apple", "apricot", "banana", "system")]
    found = published(db, *tables, selection=TableSelection(("ap*",), ("apricot",), ("system",)))
    assert [table.full_name for table in found.catalog.tables] == ["apple", "system"]


def test_a_table_asked_for_by_name_that_is_not_synced_is_refused_with_the_reason(db: Connection) -> None:
    found = published(db, "CREATE TABLE raw (id bytea PRIMARY KEY, n int)", "CREATE TABLE good (id int PRIMARY KEY)")
    refuse_unknown(TableSelection(("good", "no*")), found)
    for name, reason in (("raw", "REPLICA IDENTITY"), ("nope", "not published")):
        with pytest.raises(ConfigurationError) as raised:
            refuse_unknown(TableSelection((name,)), found)
        assert reason in raised.value.message


def test_columns_are_told_as_consumers_hold_them(db: Connection) -> None:
    found = published(db, "CREATE TABLE t (id int PRIMARY KEY, v varchar(9) NOT NULL, a text[])")
    assert list(only_table(found).declared().columns) == [
        Column("id", "int4", optional=False),
        Column("v", "varchar", optional=False, max_length=9),
        Column("a", "text[]"),
    ]


def test_a_missing_publication_is_named_with_what_to_run(db: Connection) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read_catalog(db, ["nope"], TableSelection())
    assert "CREATE PUBLICATION nope" in raised.value.fix


def test_a_publication_that_leaves_changes_out_is_refused(db: Connection) -> None:
    db.execute("CREATE PUBLICATION p FOR ALL TABLES WITH (publish = 'insert')")
    with pytest.raises(ConfigurationError) as raised:
        read_catalog(db, ["p"], TableSelection())
    assert "ALTER PUBLICATION p SET" in raised.value.fix
