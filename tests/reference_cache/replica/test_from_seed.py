"""A replica made from a seed: what the reference cache would have after an initial sync."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from adapters.memory import MemoryAdapter, MemoryStore
from changesource_sdk.adapter import Insert
from changesource_sdk.schema import Column, Index, Table
from changesource_sdk.seed.plan import SeedOptions
from reference_cache.replica.errors import UnusableReplica
from reference_cache.replica.schema import read_schema
from reference_cache.replica.stored_catalog import Origin, load_catalog
from reference_cache.replica.writing.from_seed import is_seed, load_seed
from tests.changesource_sdk.pipeline.compaction.compacted import CompactedLog
from tests.changesource_sdk.seed.seeded_log import seed_of

ITEM = Table(
    "item",
    [
        Column("id", str),
        Column("n", int),
        Column("f", float),
        Column("done", bool),
        Column("doc", dict),
        Column("tags", "text[]"),
        Column("mood", "mood", enum=True),
        Column("short", "varchar", max_length=20),
    ],
    indexes=[Index("item_n", [("n", "DESC"), "id"])],
)
PAIR = Table("team.pair", [Column("a", int), Column("b", str)], key=("a", "b"))
ROW = {"id": "1", "n": 2, "f": 2.0, "done": True, "doc": 5, "tags": ["x"], "mood": "good", "short": "s"}


@pytest.fixture
def seed(tmp_path: Path) -> Path:
    store = MemoryStore([ITEM, PAIR])
    store.commit([Insert("item", ROW), Insert("team.pair", {"a": 1, "b": "x"})])
    with closing(CompactedLog(tmp_path / "state", MemoryAdapter(store=store))) as log:
        seed_of(log.store, tmp_path / "replica.db", options=SeedOptions(publications=("p",)))
    return tmp_path / "replica.db"


ORIGIN = Origin("zero", 0, frozenset({"p"}))


def test_the_rows_schema_and_version_are_those_of_the_seed(seed: Path) -> None:
    with closing(sqlite3.connect(seed)) as connection:
        (version,) = connection.execute('SELECT replicaVersion FROM "_zero.replicationConfig"').fetchone()
    assert is_seed(seed)
    with closing(load_seed(seed, ORIGIN)) as writer:
        assert (writer.state.replica_version, writer.state.version, writer.state.log_start) == (version,) * 3
        rows = writer.connection.execute("SELECT * FROM item").fetchall()
        assert rows == [("1", 2, 2.0, 1, "5", '["x"]', "good", "s", version)]
        schema = read_schema(writer.connection)
        assert {"item", "team.pair", "zero.permissions"} <= schema.tables.keys()
        types = {name: column.type for name, column in schema.tables["item"].columns.items()}
        assert types["doc"] == types["tags"] == "json"
        assert types["mood"] == "string"
        catalog = load_catalog(writer.connection)
        assert dict(catalog.indexes["item_n"].columns) == {"n": "DESC", "id": "ASC"}
        assert schema.tables["team.pair"].primary_key == ("a", "b")
    assert not is_seed(seed)


@pytest.mark.parametrize(
    ("origin", "reason"),
    [(Origin("other", 0, frozenset({"p"})), "other_0.clients"), (Origin("zero"), "publications")],
)
def test_a_seed_of_another_app_or_publication_is_refused_and_stays(seed: Path, origin: Origin, reason: str) -> None:
    with pytest.raises(UnusableReplica, match=reason):
        load_seed(seed, origin)
    assert is_seed(seed)
    assert {path.name for path in seed.parent.glob("replica.db*")} == {"replica.db", "replica.db.sha256"}


def test_a_file_without_a_version_or_already_in_use_is_refused(seed: Path) -> None:
    with closing(sqlite3.connect(seed, isolation_level=None)) as connection:
        connection.execute("UPDATE \"_zero.replicationState\" SET stateVersion = 'zz'")
        with pytest.raises(UnusableReplica, match="used by zero-cache"):
            load_seed(seed, ORIGIN)
        connection.execute('DELETE FROM "_zero.replicationConfig"')
    with pytest.raises(UnusableReplica, match="fetch-seed"):
        load_seed(seed, ORIGIN)


def test_other_files_are_no_seeds(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to be read as one" * 20)
    assert not is_seed(tmp_path / "text")
    assert not is_seed(tmp_path / "absent")
