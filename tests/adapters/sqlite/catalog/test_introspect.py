"""Which tables are found, under which key, and what is said about the others."""

import sqlite3

import pytest

from adapters.sqlite.catalog.introspect import SyncableTables, find_tables
from adapters.sqlite.catalog.model import IndexDef, TableDef
from adapters.sqlite.settings import Selection
from changesource_sdk.errors import ConfigurationError


def found(db: sqlite3.Connection, **selection: tuple[str, ...]) -> SyncableTables:
    return find_tables(db, Selection(**selection))  # type: ignore[arg-type]


def only(db: sqlite3.Connection) -> TableDef:
    (table,) = found(db).tables
    return table


def test_a_primary_key_is_the_key_in_its_own_order(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE t (a TEXT, b INTEGER, c TEXT, PRIMARY KEY (c, a)) WITHOUT ROWID")
    assert only(db).key == ("c", "a")
    assert only(db).locator == ("c", "a")


def test_a_unique_index_over_columns_that_are_never_null_is_a_key(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE t (a TEXT NOT NULL, b INTEGER NOT NULL, c TEXT UNIQUE)")
    db.execute("CREATE UNIQUE INDEX wide ON t (a, b)")
    assert only(db).key == ("a", "b")


def test_a_key_of_a_type_that_clients_cannot_hold_is_no_key(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE t (id BLOB PRIMARY KEY, n INTEGER NOT NULL UNIQUE)")
    assert only(db).key == ("n",)


def test_a_table_without_key_is_skipped_with_the_fix(db: sqlite3.Connection) -> None:
    db.executescript("CREATE TABLE t (a TEXT); CREATE TABLE partly (a TEXT NOT NULL, b)")
    db.execute("CREATE UNIQUE INDEX some ON partly (a) WHERE b")
    assert found(db).tables == ()
    assert set(found(db).skipped) == {"t", "partly"}
    assert found(db).skipped["t"].endswith("add one")


def test_views_are_passed_over_and_virtual_tables_are_named(db: sqlite3.Connection) -> None:
    db.executescript("CREATE VIEW v AS SELECT 1; CREATE VIRTUAL TABLE f USING fts5(body)")
    assert found(db).tables == ()
    assert list(found(db).skipped) == ["f"]


def test_tables_are_chosen_by_names_and_globs(db: sqlite3.Connection) -> None:
    for name in ("users", "user_logs", "orders"):
        db.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY)")
    chosen = found(db, include=("user*", "orders"), exclude=("*_logs",))
    assert [table.name for table in chosen.tables] == ["orders", "users"]


@pytest.mark.parametrize(("name", "words"), [("nothing", "is no table"), ("keyless", "cannot be synced")])
def test_asking_for_a_table_that_cannot_be_had_is_an_error(db: sqlite3.Connection, name: str, words: str) -> None:
    db.execute("CREATE TABLE keyless (a TEXT)")
    with pytest.raises(ConfigurationError, match=words):
        found(db, include=(name,))


def test_any_name_is_a_name(db: sqlite3.Connection) -> None:
    db.execute('CREATE TABLE "Ünï ""q"" [x]" ("the key" INTEGER PRIMARY KEY, "sel""ect" TEXT, [br acket] TEXT)')
    assert only(db).name == 'Ünï "q" [x]'
    assert only(db).column_names == ("the key", 'sel"ect', "br acket")


def test_a_dotted_name_is_a_schema_and_a_table(db: sqlite3.Connection) -> None:
    db.execute('CREATE TABLE "zero_0.clients" (id TEXT PRIMARY KEY)')
    declared = only(db).declared()
    assert (declared.schema, declared.name, declared.full_name) == ("zero_0", "clients", "zero_0.clients")


def test_two_names_that_mean_one_table_are_told_apart_by_skipping(db: sqlite3.Connection) -> None:
    db.executescript('CREATE TABLE t (id INTEGER PRIMARY KEY); CREATE TABLE "public.t" (id INTEGER PRIMARY KEY)')
    assert [table.name for table in found(db).tables] == ["t"]
    assert list(found(db).skipped) == ["public.t"]


def test_generated_columns_are_columns(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER AS (id + 1), s INTEGER AS (id * 2) STORED)")
    assert only(db).column_names == ("id", "v", "s")


def test_columns_that_clients_cannot_hold_are_named(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, picture BLOB, anything)")
    assert found(db).unsynced_columns == ("t.picture", "t.anything")


def test_indexes_travel_with_direction_and_uniqueness_under_free_names(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b TEXT UNIQUE)")
    db.executescript("CREATE INDEX i ON t (a DESC, b); CREATE INDEX t_pkey ON t (a)")
    db.executescript("CREATE INDEX e ON t (lower(a)); CREATE INDEX p ON t (a) WHERE b")
    assert set(only(db).indexes) == {
        IndexDef("i", (("a", "DESC"), ("b", "ASC"))),
        IndexDef("t_pkey_index", (("a", "ASC"),)),
        IndexDef("t_b_key", (("b", "ASC"),), unique=True),
    }


def test_a_column_called_rowid_does_not_hide_the_rowid(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE t (rowid TEXT PRIMARY KEY, _rowid_ TEXT)")
    assert only(db).locator == ("oid",)
    db.execute("ALTER TABLE t ADD COLUMN oid TEXT")
    assert only(db).locator == ("rowid",)
    assert only(db).locator == only(db).key
