"""One bad table among several: the others go on, it says what is wrong, and it comes back by itself."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adapters.spark_tables.delta import feed as delta_feed
from adapters.spark_tables.polls import Polls
from changesource_sdk.adapter import CreateTable, Insert
from changesource_sdk.errors import AdapterError
from tests.adapters.spark_tables.follower import Follower
from tests.support.workloads.delta_lake import Lake, people

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")


class Warnings:
    """The notices among what was logged."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def said(self) -> list[tuple[str, str]]:
        """Code and place of what was warned of and what was cleared since the last call."""
        found = [record.__dict__.get("notice") or {} for record in self._caplog.records]
        self.texts = [record.getMessage() for record in self._caplog.records]
        self._caplog.clear()
        return [
            (f"over {notice['clears']}" if "clears" in notice else notice["code"], notice["where"])
            for notice in found
            if not notice.get("quiet") and ("clears" in notice or notice.get("holds") == "table")
        ]


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Warnings:
    monkeypatch.setattr(logging.getLogger("changesource"), "propagate", True)
    caplog.set_level(logging.INFO, logger="changesource")
    return Warnings(caplog)


class Folder:
    """A table that is a folder of Parquet files."""

    def __init__(self, path: Path, rows: pa.Table) -> None:
        self.path = path
        path.mkdir()
        self.overwrite(rows)

    def append(self, rows: pa.Table) -> None:
        pq.write_table(rows, self.path / f"part-{len(list(self.path.iterdir()))}.parquet")

    def overwrite(self, rows: pa.Table) -> None:
        for file in self.path.iterdir():
            file.unlink()
        self.append(rows)

    def rows(self) -> list[dict[str, object]]:
        found = pq.read_table(self.path).to_pylist()
        return sorted(found, key=lambda row: repr((row["id"],)))


def tables_of(tmp_path: Path, **tables: Lake | Folder) -> Mapping[str, Any]:
    """Settings of these tables by name."""
    sections = {
        name: {"delta" if isinstance(table, Lake) else "parquet": str(table.path), "key": "id", "poll": 0.01}
        for name, table in tables.items()
    }
    return {"tables": sections, "state": str(tmp_path / "state")}


@pytest.fixture(params=["delta", "parquet"])
def bad(request: pytest.FixtureRequest, tmp_path: Path) -> Lake | Folder:
    """The table that will be bad."""
    kind = Lake if request.param == "delta" else Folder
    return kind(tmp_path / "bad", people((1, "a"), (2, "b")))


@pytest.mark.parametrize(("rows", "code"), [(((3, "x"), (3, "y")), "duplicate-keys"), (((None, "x"),), "null-keys")])
def test_the_others_go_on_and_the_bad_one_recovers_with_what_it_missed(
    tmp_path: Path, bad: Lake | Folder, rows: Any, code: str, warnings: Warnings
) -> None:
    good, files = Lake(tmp_path / "good", people((1, "a"))), Folder(tmp_path / "files", people((1, "a")))
    follower = Follower(tables_of(tmp_path, bad=bad, good=good, files=files))
    bad.append(people(*rows))
    good.append(people((2, "b")))
    files.append(people((2, "b")))
    follower.look()
    assert (follower.rows("good"), follower.rows("files")) == (good.rows(), files.rows())
    assert follower.rows("bad") == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    assert warnings.said() == [(code, "table bad")]
    assert code != "duplicate-keys" or any("3 (2 times)" in text for text in warnings.texts)

    bad.append(people((4, "while it is bad")))
    good.append(people((3, "c")))
    follower.restart()
    follower.look()
    assert follower.rows("good") == good.rows()
    warnings.said()

    bad.overwrite(people((1, "changed"), (3, "x"), (4, "while it is bad")))
    follower.look()
    assert follower.rows("bad") == bad.rows()
    assert warnings.said() == [(f"over {code}", "table bad")]
    bad.append(people((5, "and on")))
    follower.look()
    assert follower.rows("bad") == bad.rows()


def test_a_table_that_is_bad_from_the_start_is_empty_until_it_is_mended(
    tmp_path: Path, bad: Lake | Folder, warnings: Warnings
) -> None:
    good = Lake(tmp_path / "good", people((1, "a")))
    bad.append(people((2, "twice")))
    follower = Follower(tables_of(tmp_path, bad=bad, good=good))
    assert (follower.rows("bad"), follower.rows("good")) == ([], good.rows())
    assert warnings.said() == [("duplicate-keys", "table bad")]
    good.append(people((2, "b")))
    follower.look()
    assert (follower.rows("bad"), follower.rows("good")) == ([], good.rows())
    follower.restart()
    bad.overwrite(people((2, "once")))
    changes = follower.look()
    assert changes == [[Insert("bad", {"id": 2, "name": "once"})]]
    bad.append(people((3, "and on")))
    follower.look()
    assert follower.rows("bad") == bad.rows()


def test_a_table_that_is_mended_with_other_columns_is_created_again(tmp_path: Path) -> None:
    good, bad = Lake(tmp_path / "good", people((1, "a"))), Lake(tmp_path / "bad", people((1, "a"), (1, "b")))
    follower = Follower(tables_of(tmp_path, bad=bad, good=good))
    bad.overwrite(pa.table({"id": [1], "size": [2.5]}), schema_mode="overwrite")
    follower.look()
    assert follower.rows("bad") == [{"id": 1, "size": 2.5}]


@pytest.mark.parametrize("kind", [Lake, Folder])
def test_a_table_that_is_not_there_at_the_start_arrives_when_it_is(
    tmp_path: Path, kind: type[Lake] | type[Folder], warnings: Warnings
) -> None:
    good, late = Lake(tmp_path / "good", people((1, "a"))), kind(tmp_path / "late", people((1, "x"), (2, "y")))
    late.path.rename(tmp_path / "away")
    follower = Follower(tables_of(tmp_path, late=late, good=good))
    assert follower.tables.keys() == {"good"}
    assert warnings.said() == [("table-missing", "table late")]
    good.append(people((2, "b")))
    follower.look()
    assert follower.rows("good") == good.rows()
    (tmp_path / "away").rename(late.path)
    (changes,) = follower.look()
    assert isinstance(changes[0], CreateTable)
    assert follower.rows("late") == late.rows()
    assert ("over table-missing", "table late") in warnings.said()


def test_tables_of_a_group_wait_for_the_bad_one_and_others_do_not(tmp_path: Path) -> None:
    bad, beside = Lake(tmp_path / "bad", people((1, "a"))), Lake(tmp_path / "beside", people((1, "a")))
    good = Lake(tmp_path / "good", people((1, "a")))
    settings = tables_of(tmp_path, bad=bad, beside=beside, good=good)
    for name in ("bad", "beside"):
        settings["tables"][name]["group"] = "both"
    follower = Follower(settings)
    for lake in (beside, good):
        lake.append(people((2, "b")))
    bad.append(people((2, "b"), (2, "c")))
    follower.look()
    assert follower.rows("good") == good.rows()
    assert follower.rows("beside") == [{"id": 1, "name": "a"}], "half of a group's transaction was passed on"
    bad.delete("name = 'c'")
    (changes,) = follower.look()
    assert len(changes) == 2
    assert (follower.rows("bad"), follower.rows("beside")) == (bad.rows(), beside.rows())


def test_if_no_table_can_be_followed_the_source_fails(tmp_path: Path) -> None:
    one, other = Lake(tmp_path / "one", people((1, "a"))), Lake(tmp_path / "other", people((1, "a")))
    follower = Follower(tables_of(tmp_path, one=one, other=other))
    for lake in (one, other):
        lake.append(people((1, "again"), (1, "and again")))
    with pytest.raises(AdapterError, match="duplicate-keys"):
        follower.look()
    for lake in (one, other):
        lake.overwrite(people((1, "mended")))
    follower.look()
    assert (follower.rows("one"), follower.rows("other")) == (one.rows(), other.rows())


@pytest.mark.parametrize("rows", [((7, "x"), (7, "y"), (8, "z")), ((None, "x"), (8, "y"), (9, "z"))])
def test_keys_are_looked_at_in_versions_too_large_to_be_held(
    tmp_path: Path, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_feed, "MOST_HELD", 2)
    bad, good = Lake(tmp_path / "bad", people((1, "a"))), Lake(tmp_path / "good", people((1, "a")))
    follower = Follower(tables_of(tmp_path, bad=bad, good=good))
    bad.append(people(*rows))
    good.append(people((2, "b")))
    follower.look()
    assert (follower.rows("bad"), follower.rows("good")) == ([{"id": 1, "name": "a"}], good.rows())


def test_a_bad_table_that_stays_as_it_is_costs_no_jobs(tmp_path: Path, spark: SparkSession, bad: Lake | Folder) -> None:
    good = Lake(tmp_path / "good", people((1, "a")))
    follower = Follower(tables_of(tmp_path, bad=bad, good=good))
    bad.append(people((2, "twice"), (2, "thrice")))
    follower.look()
    before = len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
    folders = sorted(path.name for path in (tmp_path / "state").rglob("*") if path.is_dir())
    for _ in range(3):
        follower.look()
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(None)) == before
    assert sorted(path.name for path in (tmp_path / "state").rglob("*") if path.is_dir()) == folders


def test_a_look_that_takes_long_keeps_no_other_table_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from adapters.spark_tables.readers.files_and_jdbc import FolderReader

    quick, slow = Lake(tmp_path / "quick", people((1, "a"))), Folder(tmp_path / "slow", people((1, "a")))
    follower = Follower(tables_of(tmp_path, quick=quick, slow=slow))
    is_let = threading.Event()
    frame = FolderReader.frame
    monkeypatch.setattr(FolderReader, "frame", lambda *given: is_let.wait() and frame(*given))
    slow.append(people((2, "b")))
    quick.append(people((2, "b")))
    transactions = follower.adapter.changes(follower.position)
    follower.take(next(transactions))
    assert follower.rows("quick") == quick.rows()
    quick.append(people((3, "c")))
    follower.take(next(transactions))
    assert follower.rows("quick") == quick.rows()
    assert follower.rows("slow") == [{"id": 1, "name": "a"}]
    is_let.set()
    follower.take(next(transactions))
    assert follower.rows("slow") == slow.rows()


def test_a_look_in_progress_is_one_per_unit() -> None:
    looks, is_let = Polls(), threading.Event()
    looks.start("one", {}, lambda: is_let.wait() and [])  # type: ignore[arg-type, return-value]
    assert "one" in looks
    assert list(looks.done()) == []
    is_let.set()
    looks.wait(60)
    assert [name for name, _ in looks.done()] == ["one"]
    assert not looks
