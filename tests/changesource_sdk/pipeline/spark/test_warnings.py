"""What an adapter warns of in Spark's Python workers is heard by the driver, in every lane."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.observe.warnings import REPORT, Warned, WarningBook, is_current, read_report
from changesource_sdk.pipeline.source import SourceSpec
from tests.changesource_sdk.pipeline.spark.people import PeopleFile
from tests.changesource_sdk.pipeline.spark.spark_runner import on_spark
from tests.support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GRUMBLING = "tests.changesource_sdk.pipeline.spark.people:GrumblingAdapter"
LANES = {
    "resident": {},
    "micro-batch": {"person": {"filter": {"sql": "age >= 0"}}},
}


@pytest.fixture
def store(tmp_path: Path) -> SqliteLogStore:
    found = SqliteLogStore(tmp_path / "state")
    found.layout.create()
    return found


@pytest.fixture
def _book(store: SqliteLogStore) -> Iterator[None]:
    """The pipeline process's own, as `child` has it."""
    book, own, everything = WarningBook(store.reports), logging.getLogger("changesource"), logging.getLogger()
    own.setLevel(logging.INFO)
    own.addHandler(book)
    everything.addHandler(book)
    yield
    everything.removeHandler(book)
    own.removeHandler(book)
    book.close()


def reported(store: SqliteLogStore) -> dict[str, Warned]:
    """The warnings in the log's reports, by place or by text."""
    return {found.where or found.message: found for found in read_report(store.reports.all().get(REPORT))}


@pytest.mark.usefixtures("_book")
@pytest.mark.parametrize("lane", LANES)
def test_warnings_of_workers_are_reported_until_they_are_over(
    spark: SparkSession, tmp_path: Path, store: SqliteLogStore, lane: str
) -> None:
    file = PeopleFile(tmp_path)
    file.commit(("insert", {"id": 1, "name": "Ada", "age": 36, "born": 0.0, "tags": {}}, None))
    source = SourceSpec(GRUMBLING, {"folder": str(tmp_path)}, mapping=LANES[lane])
    (tmp_path / "grumble").touch()
    with on_spark(spark, source, store) as seen:
        seen.until_generation(1)
        until(lambda: "a row looks odd" in reported(store), "the warning of a snapshot's task")
        until(lambda: "changes" in reported(store), "the warning of who follows the store", seconds=60)
        found = reported(store)
        assert found["a row looks odd"].source == "some.store"
        assert (found["changes"].code, found["changes"].holds) == ("grumble", "table")
        assert is_current(found["changes"], found["changes"].last_ms)
        (tmp_path / "grumble").unlink()
        until(lambda: reported(store)["changes"].cleared_ms, "its end", seconds=60)
