"""Delta tables that the Spark session's own Delta reads, on the newest Spark that it was made for.

In one process an adapter is followed change by change; then a series of writes goes through the endpoint to the
official zero-cache, whose replica equals the table after each.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from adapters.spark_tables import SparkTablesAdapter
from adapters.spark_tables.delta import feed as delta_feed
from adapters.spark_tables.source import TableMissing
from changesource_sdk.adapter import AddColumn, AlterColumn, Change, Delete, DropColumn, Insert, Update
from changesource_sdk.errors import AdapterError, ConfigurationError
from tests.adapters.spark_tables.follower import Follower
from tests.support.fixtures.zero_cache import zero_caches
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.spark_serving import SPARK_SECONDS, SparkServing
from tests.support.workloads.delta_lake import people
from tests.support.workloads.lakehouse import WatchedTables
from tests.support.workloads.spark_delta import EVERYTHING, FEED, SparkLake, SparkOrders, delta_conf, start_writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.delta_spark, pytest.mark.e2e, pytest.mark.timeout(1200)]

SEED = 708


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = start_writer(tmp_path_factory.mktemp("warehouse"))
    yield session
    session.stop()


@pytest.fixture
def lake(tmp_path: Path, writer: SparkSession) -> SparkLake:
    return SparkLake(writer, tmp_path / "people", people((1, "Ada"), (2, "Bob"), (3, None)), EVERYTHING)


def settings(lake: SparkLake, **more: object) -> dict[str, object]:
    section = {"delta": str(lake.path), "key": "id", "delta_reader": "spark", **more}
    return {"tables": {"people": section}, "state": str(lake.path.parent / "state")}


def kinds(transactions: list[list[Change]]) -> list[list[str]]:
    return [sorted(type(change).__name__ for change in changes) for changes in transactions]


def test_each_version_is_a_transaction_with_its_rows_before_and_after(lake: SparkLake) -> None:
    follower = Follower(settings(lake))
    lake.run("UPDATE now SET name = 'Bea' WHERE id = 2")
    lake.run("DELETE FROM now WHERE id = 1")
    lake.merge(people((3, "Cy"), (4, "Dan")))
    lake.run("OPTIMIZE now")
    lake.run("UPDATE now SET id = 20 WHERE id = 2")
    updated, deleted, merged, moved = follower.look()
    assert updated == [Update("people", {"id": 2, "name": "Bea"}, {"id": 2, "name": "Bob"})]
    assert deleted == [Delete("people", {"id": 1, "name": "Ada"})]
    assert kinds([merged, moved]) == [["Insert", "Update"], ["Delete", "Insert"]]
    assert follower.rows("people") == lake.rows()
    assert follower.look() == []


def test_columns_that_are_added_widened_renamed_and_dropped_follow_with_the_feed(lake: SparkLake) -> None:
    follower = Follower(settings(lake))
    lake.run("ALTER TABLE now ADD COLUMN age INT")
    lake.run("UPDATE now SET age = 30 WHERE id = 1")
    lake.run("ALTER TABLE now ALTER COLUMN age TYPE BIGINT")
    lake.run(f"UPDATE now SET age = {1 << 40} WHERE id = 2")
    lake.run("ALTER TABLE now RENAME COLUMN age TO years")
    lake.run("ALTER TABLE now DROP COLUMN name")
    lake.run("DELETE FROM now WHERE id = 3")
    follower.restart()
    told = [changes[0] for changes in follower.look()]
    expected = [AddColumn, Update, AlterColumn, Update, AlterColumn, DropColumn, Delete]
    assert [type(change) for change in told] == expected
    assert told[1] == Update("people", {"id": 1, "name": "Ada", "age": 30}, {"id": 1, "name": "Ada", "age": None})
    assert follower.tables["people"].columns["years"] == "int8"
    assert follower.rows("people") == lake.rows()


def test_a_large_version_is_passed_on_as_it_is_read(lake: SparkLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_feed, "MOST_HELD", 3)
    follower = Follower(settings(lake))
    lake.merge(people((2, "Bea"), (3, "Cy"), (4, "Dan")))
    (changes,) = follower.look()
    assert [type(change) for change in changes] == [Delete, Delete, Insert, Insert, Insert]
    assert follower.rows("people") == lake.rows()


def _made_anew(lake: SparkLake) -> None:
    lake.drop()
    SparkLake(lake.session, lake.path, people((1, "Ada"), (3, "Cy"), (8, "Hal")), EVERYTHING)


def _cleaned(lake: SparkLake) -> None:
    lake.append(people((5, "Eve")))
    lake.run("DELETE FROM now WHERE id = 4")
    lake.clean_log()


@pytest.mark.parametrize("break_feed", [_made_anew, _cleaned])
def test_a_gap_is_bridged_and_the_feed_goes_on_after_it(
    lake: SparkLake, break_feed: Callable[[SparkLake], None]
) -> None:
    follower = Follower(settings(lake), replacing=True)
    lake.append(people((4, "Dan")))
    assert kinds(follower.look()) == [["Insert"]]
    break_feed(lake)
    follower.restart()
    follower.look()
    assert follower.rows("people") == lake.rows()
    lake.run("UPDATE now SET name = 'Ida' WHERE id = 1")
    (changes,) = follower.look()
    assert changes == [Update("people", {"id": 1, "name": "Ida"}, {"id": 1, "name": "Ada"})]


def test_one_reader_goes_on_where_the_other_stopped_and_spark_when_only_it_can(
    tmp_path: Path, writer: SparkSession
) -> None:
    rows = people((1, "Ada"), (2, "Bob"), (3, "Cy")).append_column("n", pa.array([1, 2, 3], pa.int32()))
    lake = SparkLake(writer, tmp_path / "people", rows, FEED)
    follower = Follower(settings(lake, delta_reader="spark"))
    for reader, gone in (("spark", 3), ("deltalake", 2)):
        follower.settings = settings(lake, delta_reader=reader)
        follower.restart()
        lake.run(f"DELETE FROM now WHERE id = {gone}")
        assert kinds(follower.look()) == [["Delete"]]
    follower.settings = settings(lake, delta_reader="auto")
    follower.restart()
    assert follower.look() == []
    lake.run("ALTER TABLE now SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    lake.run("ALTER TABLE now ALTER COLUMN n TYPE BIGINT")
    lake.run(f"UPDATE now SET n = {1 << 40}")
    altered, updated = follower.look()
    assert [type(change) for change in (*altered, *updated)] == [AlterColumn, Update]
    assert follower.rows("people") == lake.rows() == [{"id": 1, "name": "Ada", "n": 1 << 40}]


def test_a_name_in_the_sessions_catalog_leads_to_its_table(tmp_path: Path, writer: SparkSession) -> None:
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in EVERYTHING.items())
    writer.sql(f"CREATE TABLE named (id BIGINT, name STRING) USING delta TBLPROPERTIES ({properties})")
    writer.sql("INSERT INTO named VALUES (1, 'Ada')")
    tables = {"people": {"delta": "named", "key": "id"}}
    follower = Follower({"tables": tables, "state": str(tmp_path / "state")})
    writer.sql("UPDATE named SET name = 'Ida'")
    assert follower.look() == [[Update("people", {"id": 1, "name": "Ida"}, {"id": 1, "name": "Ada"})]]


def test_a_query_reads_a_table_that_only_spark_reads(lake: SparkLake) -> None:
    query = {"query": "SELECT id, upper(name) AS name FROM people", "key": "id"}
    both = settings(lake)
    follower = Follower({**both, "tables": {**both["tables"], "loud": query}})  # type: ignore[dict-item]
    lake.run("UPDATE now SET name = 'Bea' WHERE id = 2")
    follower.look()
    assert [row["name"] for row in follower.rows("loud")] == ["ADA", "BEA", None]


def test_a_table_that_is_not_there_is_told_with_its_place(lake: SparkLake) -> None:
    lake.drop()
    with pytest.raises(TableMissing) as raised:
        SparkTablesAdapter(**settings(lake)).snapshot()  # type: ignore[arg-type]
    assert str(lake.path) in raised.value.message


def test_a_damaged_log_is_told(lake: SparkLake) -> None:
    for file in (lake.path / "_delta_log").glob("*.crc"):
        file.unlink()
    (lake.path / "_delta_log" / f"{1:020}.json").write_text("{nonsense")
    with pytest.raises(AdapterError) as raised:
        SparkTablesAdapter(**settings(lake)).snapshot()  # type: ignore[arg-type]
    assert raised.value.code == "table-unreadable"
    assert raised.value.where == "table people"


def test_a_data_file_that_is_gone_is_told_by_its_name(lake: SparkLake) -> None:
    files = list(lake.path.rglob("*.parquet"))
    for file in files:
        file.unlink()
    with pytest.raises(AdapterError) as raised:
        Follower(settings(lake))
    assert raised.value.code == "table-unreadable"
    assert any(file.name in raised.value.message for file in files)


def test_keys_that_are_no_keys_are_told(lake: SparkLake) -> None:
    follower = Follower(settings(lake))
    with pytest.raises(ConfigurationError, match="there is no column 'idd'"):
        SparkTablesAdapter(**settings(lake, key="idd")).tables()  # type: ignore[arg-type]
    lake.append(people((9, "a"), (9, "b")))
    with pytest.raises(AdapterError) as raised:
        follower.look()
    assert raised.value.code == "duplicate-keys"
    assert "9 (2 times)" in raised.value.message


def test_the_replica_equals_the_table_after_each_write(
    writer: SparkSession, postgres: PostgresServer, tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    tables = WatchedTables([SparkOrders(writer, tmp_path / "orders", rng)])
    conf = [part for key, value in delta_conf().items() for part in ("--conf", f"{key}={value}")]
    with (
        SparkServing("spark-tables", tables.settings, tmp_path / "state", options=conf) as endpoint,
        zero_caches(postgres, tmp_path) as make_cache,
    ):
        endpoint.start(seconds=SPARK_SECONDS)
        cache = make_cache(endpoint.stream_url).start()
        assert tables.difference(cache.replica) == ""
        first = cache.replica.version()
        for operation in tables.series(rng):
            tables.write(operation, rng)
            tables.wait_until_same(cache.replica)
        assert cache.replica.version() == first, "consumers were reset"
        assert cache.exits == []
        assert len(endpoint.runs) == 1
        assert endpoint.stop() == 0
