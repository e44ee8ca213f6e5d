"""A table without a change feed, followed as the adapter does: files, a query, schema changes, kills, bad input."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from adapters.spark_tables import SparkTablesAdapter
from adapters.spark_tables.difference import compute as difference
from adapters.spark_tables.difference.state import StateFolder, StateVersion
from adapters.spark_tables.readers.files_and_jdbc import FolderReader
from adapters.spark_tables.settings import TableSettings
from changesource_sdk.adapter import (
    AddColumn,
    Change,
    Column,
    CreateTable,
    Delete,
    DropColumn,
    DropTable,
    Insert,
    Position,
    Row,
    Truncate,
    Update,
)
from changesource_sdk.errors import AdapterError, ResyncRequired

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = Mapping[int, str | None]


@pytest.fixture(autouse=True)
def _session(spark: SparkSession) -> None:
    """The adapter uses the session that runs."""


class Followed:
    """An adapter over one or more tables, and what a consumer of the first holds."""

    def __init__(self, tmp_path: Path, tables: Mapping[str, Mapping[str, object]]) -> None:
        self._settings: dict[str, Any] = {"tables": tables, "state": str(tmp_path / "state")}
        self.name = next(iter(tables))
        self.restart()
        snapshot = self.adapter.snapshot()
        self.position: Position = snapshot.position
        found = [row for part in snapshot.partitions if part.table == self.name for row in part.rows()]
        self.rows: dict[object, Row] = {row["id"]: row for row in found}
        assert len(self.rows) == len(found)
        if snapshot.close is not None:
            snapshot.close()

    def restart(self) -> None:
        """What a new process does: all that was held is gone."""
        self.adapter = SparkTablesAdapter(**self._settings)

    def look(self, *, durable: bool = True) -> list[Change]:
        """One look; what it finds is applied, and acknowledged if the log is to have it."""
        self.adapter._due.clear()
        seen: list[Change] = []
        for transaction in self.adapter.changes(self.position):
            seen += transaction.changes
            if durable:
                self.position = transaction.position
                self.adapter.acknowledge(transaction.position)
        if durable:
            for change in seen:
                self._apply(change)
        return seen

    def _apply(self, change: Change) -> None:
        match change:
            case Insert(table, row) | Update(table, row) if table == self.name:
                self.rows[row["id"]] = row
            case Delete(table, key) if table == self.name:
                del self.rows[key["id"]]
            case Truncate() | DropTable():
                self.rows.clear()

    def values(self, column: str = "t") -> dict[object, object]:
        return {key: row.get(column) for key, row in self.rows.items()}


def table_of(rows: Rows) -> pa.Table:
    return pa.table({"id": pa.array(rows.keys(), pa.int64()), "t": pa.array(rows.values(), pa.string())})


def write(folder: Path, *parts: pa.Table, kind: str = "parquet") -> None:
    """Replace the files of a folder."""
    folder.mkdir(exist_ok=True)
    old = list(folder.iterdir())
    for number, part in enumerate(parts):
        path = folder / f"part-{number}-{len(old)}-{threading.get_ident()}-{next(_numbers)}.{kind}"
        match kind:
            case "parquet":
                pq.write_table(part, path)
            case "orc":
                pyarrow.orc.write_table(part, path)
            case "csv":
                pyarrow.csv.write_csv(part, path)
            case _:
                path.write_text("".join(f"{_json(row)}\n" for row in part.to_pylist()))
    for path in old:
        path.unlink()


def _json(row: Mapping[str, object]) -> str:
    import orjson

    return orjson.dumps(row).decode()


_numbers: Iterator[int] = iter(range(1_000_000))


@pytest.mark.parametrize("kind", ["parquet", "orc", "csv", "json"])
def test_a_folder_of_files_is_followed_through_inserts_updates_and_deletes(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "items"
    options = {"schema": "id bigint, t string"} if kind in ("csv", "json") else {}
    write(folder, table_of({1: "a", 2: "b"}), table_of({3: "c"}), kind=kind)
    items = Followed(tmp_path, {"items": {kind: str(folder), "key": "id", "options": options}})
    assert items.values() == {1: "a", 2: "b", 3: "c"}
    assert items.look() == []
    write(folder, table_of({1: "a", 2: "changed", 4: "new"}), kind=kind)
    changes = items.look()
    assert sorted(type(change).__name__ for change in changes) == ["Delete", "Insert", "Update"]
    assert items.values() == {1: "a", 2: "changed", 4: "new"}
    assert items.look() == []


def test_files_that_were_only_put_together_are_no_change(tmp_path: Path) -> None:
    folder = tmp_path / "items"
    write(folder, table_of({1: "a"}), table_of({2: "b"}))
    items = Followed(tmp_path, {"items": {"parquet": str(folder), "key": "id"}})
    write(folder, table_of({2: "b", 1: "a"}))
    assert items.look() == []


def test_a_version_that_never_became_durable_is_computed_again(tmp_path: Path) -> None:
    folder = tmp_path / "items"
    write(folder, table_of({1: "a", 2: "b"}))
    items = Followed(tmp_path, {"items": {"parquet": str(folder), "key": "id"}})
    write(folder, table_of({1: "z", 2: "b"}))
    assert items.look(durable=False) == [Update("items", {"id": 1, "t": "z"})]
    items.restart()
    write(folder, table_of({1: "z", 3: "c"}))
    assert len(items.look()) == 3
    assert items.values() == {1: "z", 3: "c"}
    items.restart()
    assert items.look() == []


def test_versions_that_are_ahead_of_the_log_stay_until_they_are_durable(tmp_path: Path) -> None:
    folder = tmp_path / "items"
    write(folder, table_of({1: "a"}))
    items = Followed(tmp_path, {"items": {"parquet": str(folder), "key": "id"}})
    durable = items.position
    for text in "bcd":
        write(folder, table_of({1: text}))
        items.adapter._due.clear()
        (found,) = items.adapter.changes(items.position)
        items.position = found.position
    items.position = durable
    items.restart()
    assert items.look() == [Update("items", {"id": 1, "t": "d"})]


def test_lost_state_asks_for_a_new_snapshot(tmp_path: Path) -> None:
    folder = tmp_path / "items"
    write(folder, table_of({1: "a"}))
    items = Followed(tmp_path, {"items": {"parquet": str(folder), "key": "id"}})
    for path in sorted((tmp_path / "state").rglob("version-*.json")):
        path.unlink()
    items.restart()
    with pytest.raises(ResyncRequired) as error:
        items.look()
    assert error.value.code == "position-lost"


def test_a_new_column_is_added_without_touching_rows_that_lack_it(tmp_path: Path) -> None:
    folder = tmp_path / "items"
    write(folder, table_of({1: "a", 2: "b"}))
    items = Followed(tmp_path, {"items": {"parquet": str(folder), "key": "id"}})
    longer = table_of({3: "c"}).append_column("n", pa.array([5], pa.int32()))
    pq.write_table(longer, folder / "more.parquet")
    assert items.look() == [
        AddColumn("items", Column("n", "int4")),
        Insert("items", {"id": 3, "t": "c", "n": 5}),
    ]


def test_a_new_column_of_nulls_alone_moves_the_shape(tmp_path: Path) -> None:
    folder = tmp_path / "items"
    write(folder, table_of({1: "a"}))
    items = Followed(tmp_path, {"items": {"parquet": str(folder), "key": "id"}})
    write(folder, table_of({1: "a"}).append_column("n", pa.array([None], pa.int32())))
    assert items.look() == [AddColumn("items", Column("n", "int4"))]
    items.restart()
    assert items.look() == []


def test_a_dropped_column_goes(tmp_path: Path) -> None:
    folder = tmp_path / "items"
    write(folder, table_of({1: "a"}).append_column("n", pa.array([None], pa.int32())))
    items = Followed(tmp_path, {"items": {"parquet": str(folder), "key": "id"}})
    write(folder, table_of({1: "a"}))
    assert items.look() == [DropColumn("items", "n")]


def test_a_column_of_another_type_sends_all_rows_again(tmp_path: Path) -> None:
    folder = tmp_path / "items"
    write(folder, table_of({1: "10", 2: "20"}))
    items = Followed(tmp_path, {"items": {"parquet": str(folder), "key": "id"}})
    numbers = pa.table({"id": pa.array([1, 2], pa.int64()), "t": pa.array([10, 20], pa.int64())})
    write(folder, numbers)
    changes = items.look()
    assert [change for change in changes if isinstance(change, Insert)] == [
        Insert("items", {"id": 1, "t": 10}),
        Insert("items", {"id": 2, "t": 20}),
    ]
    assert not any(isinstance(change, CreateTable) for change in changes)
    assert items.values() == {1: 10, 2: 20}
    items.restart()
    assert items.look() == []


def test_a_query_over_two_tables_follows_both(tmp_path: Path) -> None:
    orders, people = tmp_path / "orders", tmp_path / "people"
    write(orders, pa.table({"id": [1, 2, 3], "who": [10, 10, 20], "sum": [1.5, 2.5, 4.0]}))
    write(people, table_of({10: "ann", 20: "bob"}))
    query = "WITH o AS (SELECT who, sum FROM orders) SELECT p.id, p.t, sum(o.sum) AS total FROM o JOIN people p ON "
    tables = {
        "totals": {"query": query + "o.who = p.id GROUP BY p.id, p.t", "key": "id"},
        "orders": {"parquet": str(orders), "key": "id"},
        "people": {"parquet": str(people), "key": "id"},
    }
    totals = Followed(tmp_path, tables)
    assert totals.values("total") == {10: 4.0, 20: 4.0}
    assert totals.look() == []
    write(people, table_of({10: "anna", 20: "bob"}))
    totals.look()
    assert totals.values() == {10: "anna", 20: "bob"}
    write(orders, pa.table({"id": [1, 2], "who": [10, 10], "sum": [1.5, 5.0]}))
    totals.look()
    assert totals.values("total") == {10: 6.5}


def test_a_query_may_read_files_by_their_path(tmp_path: Path) -> None:
    folder = tmp_path / "items"
    write(folder, table_of({1: "a", 2: "b"}))
    query = f"SELECT id, upper(t) AS t FROM parquet.`{folder}` WHERE id IN (SELECT id FROM parquet.`{folder}`)"
    upper = Followed(tmp_path, {"upper": {"query": query, "key": "id"}})
    assert upper.values() == {1: "A", 2: "B"}
    write(folder, table_of({2: "c"}))
    upper.look()
    assert upper.values() == {2: "C"}


def test_a_folder_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "items"
    write(folder, table_of({1: "a"}))
    items = Followed(tmp_path, {"items": {"parquet": str(folder), "key": "id"}})
    for path in folder.iterdir():
        path.unlink()
    assert items.look() == []
    staging = folder / "_temporary" / "0"
    staging.mkdir(parents=True)
    pq.write_table(table_of({2: "half"}), folder / "half.parquet")
    (staging / "part").write_text("")
    assert items.look() == []
    (staging / "part").unlink()
    staging.rmdir()
    assert len(items.look()) == 2


def test_a_folder_that_is_gone_changes_nothing_until_it_is_back(tmp_path: Path) -> None:
    folder = tmp_path / "items"
    write(folder, table_of({1: "a"}))
    items = Followed(tmp_path, {"items": {"parquet": str(folder), "key": "id"}})
    folder.rename(tmp_path / "away")
    assert items.look() == []
    write(folder, table_of({1: "back"}))
    assert items.look() == [Update("items", {"id": 1, "t": "back"})]


def test_an_old_state_does_not_pile_up(tmp_path: Path) -> None:
    folder = tmp_path / "items"
    write(folder, table_of({1: "a"}))
    items = Followed(tmp_path, {"items": {"parquet": str(folder), "key": "id"}})
    for text in "bcd":
        write(folder, table_of({1: text}))
        assert len(items.look()) == 1
    (state,) = (tmp_path / "state").iterdir()
    kinds = sorted(path.name.partition("-")[0] for path in state.iterdir())
    assert kinds == ["base", "delta", "delta", "delta", "shape", "version"]


def remembered(tmp_path: Path) -> StateVersion:
    """The only version that is left."""
    (found,) = (tmp_path / "state").rglob("version-*.json")
    version = StateFolder(str(found.parent)).load(int(found.stem.removeprefix("version-")))
    assert version is not None
    return version


def test_many_deltas_are_put_together_in_an_idle_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(difference, "MOST_DELTAS", 1)
    folder = tmp_path / "items"
    write(folder, table_of({1: "a", 2: "b"}))
    items = Followed(tmp_path, {"items": {"parquet": str(folder), "key": "id"}})
    for text in "cd":
        write(folder, table_of({1: text, 2: "b"}))
        items.look()
    assert len(remembered(tmp_path).deltas) == 2
    assert items.look() == []
    assert remembered(tmp_path).deltas == ()
    write(folder, table_of({1: "d"}))
    assert items.look() == [Delete("items", {"id": 2})]


def test_digests_are_compared_after_as_many_differences_as_the_settings_say(tmp_path: Path) -> None:
    folder = tmp_path / "items"
    write(folder, table_of({1: "a"}))
    items = Followed(tmp_path, {"items": {"parquet": str(folder), "key": "id", "full_compare": 1}})
    write(folder, table_of({1: "b"}))
    items.look()
    assert remembered(tmp_path).hash_compares == 1
    assert items.look() == []
    assert remembered(tmp_path).hash_compares == 0


def test_unchanged_files_cost_no_job(tmp_path: Path, spark: SparkSession) -> None:
    folder = tmp_path / "items"
    write(folder, table_of({1: "a"}))
    items = Followed(tmp_path, {"items": {"parquet": str(folder), "key": "id"}})
    spark.sparkContext.setJobGroup("look", "a look at unchanged files")
    assert items.look() == []
    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup("look")) == []
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # removes it


def failing(tmp_path: Path, section: Mapping[str, object]) -> AdapterError:
    adapter = SparkTablesAdapter(tables={"items": {"key": "id", **section}}, state=str(tmp_path / "state"))
    with pytest.raises(AdapterError) as error:
        adapter.snapshot()
    assert error.value.where == "table items"
    assert error.value.fix
    return error.value


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    assert failing(tmp_path, {"parquet": str(tmp_path / "nowhere")}).code == "table-missing"


def test_a_damaged_file_is_named_with_the_words_of_spark(tmp_path: Path) -> None:
    folder = tmp_path / "items"
    folder.mkdir()
    (folder / "part.parquet").write_bytes(b"PAR1 this is no parquet file PAR1")
    error = failing(tmp_path, {"parquet": str(folder)})
    assert error.code == "table-unreadable"
    assert "[" in error.message


def test_a_text_that_is_no_number_is_told_for_csv(tmp_path: Path) -> None:
    folder = tmp_path / "items"
    folder.mkdir()
    (folder / "items.csv").write_text("id,n\n1,2\n2,many\n")
    error = failing(tmp_path, {"csv": str(folder), "options": {"schema": "id bigint, n int"}})
    assert error.code == "table-unreadable"
    assert "items.csv" in error.message
    assert '"many"' in error.message


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELEKT 1 AS id", "PARSE_SYNTAX_ERROR"),
        ("SELECT id, nothing FROM range(3)", "UNRESOLVED_COLUMN"),
        ("SELECT * FROM no_such_table", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SELECT id, 1 / (id - id) AS x FROM range(3)", "DIVIDE_BY_ZERO"),
    ],
)
def test_a_wrong_query_is_told_in_the_words_of_spark_and_ours(tmp_path: Path, query: str, said: str) -> None:
    error = failing(tmp_path, {"query": query})
    assert error.code == "bad-query"
    assert said in error.message
    assert "tables.items.query" in error.fix


def test_a_database_behind_jdbc_is_followed(tmp_path: Path, spark: SparkSession) -> None:
    url = f"jdbc:derby:memory:{tmp_path.name};create=true"
    driver = {"driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver"}

    def store(rows: Rows) -> None:
        spark.createDataFrame(list(rows.items()), "id bigint, t string").write.jdbc(url, "items", "overwrite", driver)

    store({1: "a", 2: "b"})
    items = Followed(tmp_path, {"items": {"jdbc": url, "key": "id", "options": driver}})
    assert items.values() == {1: "a", 2: "b"}
    assert items.look() == []
    store({2: "c", 3: None})
    items.look()
    assert items.values() == {2: "c", 3: None}


def test_a_database_without_driver_says_what_to_add(tmp_path: Path) -> None:
    error = failing(tmp_path, {"jdbc": "jdbc:postgresql://127.0.0.1:1/none"})
    assert error.code == "driver-missing"
    assert "spark.jars.packages" in error.fix


def test_a_folder_by_pattern_has_no_fingerprint(spark: SparkSession, tmp_path: Path) -> None:
    reader = FolderReader(TableSettings("items", "parquet", str(tmp_path / "*.parquet"), ("id",)))
    assert reader.fingerprint(spark) is None
