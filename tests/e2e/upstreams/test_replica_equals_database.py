"""The replica of the official zero-cache equals the database: every type at first sync, then every kind of live change.

One endpoint and one cache per runner serve the whole module; each test owns a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.fixtures.serving import servings
from tests.support.fixtures.zero_cache import MakeZeroClient, zero_caches
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.serving import Serving
from tests.support.peers.zero_cache import ZeroCache
from tests.support.workloads.sqlite_store import SqliteStore, difference, wait_until_same

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TYPES = """
    CREATE TABLE types (
        id INTEGER PRIMARY KEY, small INTEGER, big BIGINT, real REAL, text TEXT, short VARCHAR(20), flag BOOLEAN,
        doc JSON, price DECIMAL(10, 2), day DATE, at DATETIME, raw BLOB
    )
"""
VALUES: list[tuple[object, ...]] = [
    (1, 0, 0, 0.0, "", "", False, "{}", 0, "2026-01-31", "2026-01-31 12:00:00", b""),
    (2, None, None, None, None, None, None, None, None, None, None, None),
    (
        3,
        -1,
        2**53 - 1,
        0.1,
        "plain",
        "x" * 20,
        True,
        '{"a": [1, 2.5, null, "é"]}',
        12.25,
        "2026-01-31",
        None,
        b"\0\xff",
    ),
    (4, 1, -(2**53) + 1, -1e300, "Ünïcödé 漢字 🜚 \u202e", "\t\n\"'\\", True, '"text"', -0.5, None, None, b"\x80"),
    (5, 2, 2**63 - 1, 5e-324, "a\0b", "null", False, "[]", 99999999.99, None, None, bytes(range(256))),
    (6, 3, -(2**63), 1.7976931348623157e308, "{}", "0", False, "17", 1, None, None, None),
    (7, 4, 2**53 + 1, 123456789.123456789, "x" * 100_000, "1", True, "true", 2, None, None, None),
]
DAILY = [f"CREATE TABLE daily_{name} (id INTEGER PRIMARY KEY, title TEXT, amount INTEGER)" for name in "abcd"]
SEEN_TABLE = "CREATE TABLE seen (id TEXT PRIMARY KEY NOT NULL, n INTEGER, x REAL, done BOOLEAN, doc JSON, at DATETIME)"
SEEN = {
    "seen": {"id": "string", "n": "number", "x": "number", "done": "boolean", "doc": "json", "at": "string"},
}
NAMES = """
    CREATE TABLE "Mixed Case" ("Key" TEXT NOT NULL, "größe" INTEGER NOT NULL, "select" TEXT,
    PRIMARY KEY ("Key", "größe")) WITHOUT ROWID
"""


@dataclass(slots=True)
class Synced:
    """A store, our endpoint over it, and the official cache that follows."""

    store: SqliteStore
    endpoint: Serving
    cache: ZeroCache

    def run(self, *statements: str) -> None:
        """Change the store in one transaction and wait for the replica to equal it."""
        self.store.run(*statements)
        wait_until_same(self.store, self.cache.replica)


@pytest.fixture(scope="module", params=["inline", "spark"])
def synced(
    request: pytest.FixtureRequest, postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Synced]:
    folder = tmp_path_factory.mktemp("equal")
    store = SqliteStore(folder / "app.db", TYPES, NAMES, SEEN_TABLE, *DAILY)
    store.insert("types", VALUES)
    store.insert("Mixed Case", [("a", 1, "first"), ("a", 2, None), ("ß", -1, "last")])
    for name in "abcd":
        store.insert(f"daily_{name}", [(number, f"title {number}", number * 10) for number in range(1, 21)])
    with servings(folder) as make_endpoint, zero_caches(postgres, folder) as make_cache:
        endpoint = make_endpoint(store, runner=request.param).start()
        yield Synced(store, endpoint, make_cache(endpoint.stream_url).start())


def test_first_sync_copies_every_type_null_and_unicode_exactly(synced: Synced) -> None:
    assert difference(synced.store, synced.cache.replica) == ""


def test_integers_of_53_and_63_bits_stay_exact(synced: Synced) -> None:
    big = [value for (value,) in synced.cache.replica.query("SELECT big FROM types WHERE big IS NOT NULL ORDER BY id")]
    assert big == [0, 2**53 - 1, -(2**53) + 1, 2**63 - 1, -(2**63), 2**53 + 1]


def test_blobs_are_reported_as_not_synced(synced: Synced) -> None:
    assert synced.cache.replica.columns("types")["raw"].startswith("bytea")
    said = "\n".join(synced.endpoint.process.lines)
    assert "raw" in said
    assert "not synced" in said


def test_every_type_arrives_live_as_well(synced: Synced) -> None:
    synced.store.insert("types", [(100 + int(str(row[0])), *row[1:]) for row in VALUES])
    wait_until_same(synced.store, synced.cache.replica)


def test_rows_inserted_updated_and_deleted_follow(synced: Synced) -> None:
    synced.run("INSERT INTO daily_a VALUES (100, 'new', 1)")
    synced.run("UPDATE daily_a SET title = 'changed', amount = NULL WHERE id = 100")
    synced.run("DELETE FROM daily_a WHERE id = 100")
    synced.run(
        "INSERT INTO daily_a VALUES (101, 'one', 1)",
        "UPDATE daily_a SET amount = amount + 1",
        "DELETE FROM daily_a WHERE id IN (1, 2)",
        "INSERT INTO daily_a VALUES (1, 'again', 1)",
    )


def test_a_changed_key_leaves_no_row_behind(synced: Synced) -> None:
    synced.run("UPDATE daily_b SET id = id + 1000 WHERE id <= 5")
    synced.run('UPDATE "Mixed Case" SET "größe" = 7, "select" = \'moved\' WHERE "Key" = \'a\' AND "größe" = 1')
    synced.run("UPDATE daily_b SET id = -id")


def test_a_replaced_row_takes_the_other_unique_key_with_it(synced: Synced) -> None:
    synced.run("CREATE TABLE account (id INTEGER PRIMARY KEY, email TEXT NOT NULL UNIQUE)")
    synced.run("INSERT INTO account VALUES (1, 'a@x'), (2, 'b@x')")
    synced.run("INSERT OR REPLACE INTO account VALUES (3, 'a@x')")
    assert synced.cache.replica.rows("account", ["id", "email"]) == [(2, "b@x"), (3, "a@x")]


def test_a_bulk_delete_empties_the_table(synced: Synced) -> None:
    synced.run("DELETE FROM daily_c")
    synced.run("INSERT INTO daily_c VALUES (1, 'after', 1)")


def test_columns_can_be_added_renamed_and_dropped(synced: Synced) -> None:
    synced.run("ALTER TABLE daily_d ADD COLUMN note TEXT")
    synced.run("UPDATE daily_d SET note = 'n' || id WHERE id < 10")
    synced.run("ALTER TABLE daily_d ADD COLUMN stars INTEGER NOT NULL DEFAULT 3")
    synced.run("ALTER TABLE daily_d ADD COLUMN label TEXT DEFAULT 'it''s'")
    synced.run("ALTER TABLE daily_d RENAME COLUMN note TO remark")
    synced.run("ALTER TABLE daily_d DROP COLUMN amount", "UPDATE daily_d SET remark = 'both' WHERE id = 1")


def test_tables_can_be_created_renamed_and_dropped(synced: Synced) -> None:
    synced.run("CREATE TABLE young (id TEXT PRIMARY KEY NOT NULL, n REAL)", "INSERT INTO young VALUES ('a', 1.5)")
    synced.run("INSERT INTO young VALUES ('b', 2.5)")
    synced.run("ALTER TABLE young RENAME TO older")
    synced.run("INSERT INTO older VALUES ('c', 3.5)")
    synced.run("DROP TABLE older")
    synced.run("CREATE TABLE older (id INTEGER PRIMARY KEY, different TEXT)")


def test_indexes_follow_and_a_column_can_go_with_its_index(synced: Synced) -> None:
    synced.run("CREATE TABLE indexed (id INTEGER PRIMARY KEY, a TEXT, b INTEGER)")
    synced.run("CREATE INDEX indexed_a ON indexed (a)", "CREATE UNIQUE INDEX indexed_ab ON indexed (b, a)")
    assert {"indexed_a", "indexed_ab"} <= set(synced.cache.replica.indexes("indexed"))
    synced.run("DROP INDEX indexed_a", "DROP INDEX indexed_ab")
    synced.run("ALTER TABLE indexed DROP COLUMN b")


def test_a_schema_change_between_two_writes_stays_in_order(synced: Synced) -> None:
    synced.run("CREATE TABLE ordered (id INTEGER PRIMARY KEY, a TEXT)")
    synced.store.run("INSERT INTO ordered VALUES (1, 'before')")
    synced.store.run("ALTER TABLE ordered ADD COLUMN b TEXT")
    synced.store.run("INSERT INTO ordered VALUES (2, 'after', 'b')")
    synced.store.run("ALTER TABLE ordered RENAME COLUMN a TO c")
    synced.run("INSERT INTO ordered VALUES (3, 'last', NULL)")


def test_the_official_client_sees_each_type_as_its_own(synced: Synced, zero_client: MakeZeroClient) -> None:
    synced.run(
        """INSERT INTO seen VALUES ('é', 9007199254740991, 0.1, TRUE, '{"a":[1,null]}', '2026-01-31 12:00')""",
        "INSERT INTO seen (id) VALUES ('null')",
    )
    client = zero_client(synced.cache, SEEN)
    full = {"id": "é", "n": 2**53 - 1, "x": 0.1, "done": True, "doc": {"a": [1, None]}, "at": "2026-01-31 12:00"}
    nulls = dict.fromkeys(full) | {"id": "null"}
    client.wait_for_rows("seen", [nulls, full])
    synced.run("UPDATE seen SET done = FALSE, doc = '[]' WHERE id = 'é'", "DELETE FROM seen WHERE id = 'null'")
    client.wait_for_rows("seen", [full | {"done": False, "doc": []}])


def test_nothing_was_restarted_on_the_way(synced: Synced) -> None:
    assert synced.cache.exits == []
    assert len(synced.endpoint.runs) == 1
    assert difference(synced.store, synced.cache.replica) == ""
