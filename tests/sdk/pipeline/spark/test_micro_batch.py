"""The micro-batch lane on a real session: SQL over changes, in order, once, and with the errors of the other lanes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.sdk.pipeline.spark.people import PeopleFile
from tests.sdk.pipeline.spark.test_mapping import mapped_people, person
from tests.sdk.pipeline.test_mapped import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ADULTS: dict[str, object] = {
    "name": "adult",
    "select": ["id"],
    "filter": {"sql": "age >= 18"},
    "columns": {"label": {"sql": "concat(name, ' ', age)", "type": "text"}},
}


def test_changes_pass_through_sql_in_order_and_once(spark: SparkSession, tmp_path: Path) -> None:
    store = PeopleFile(tmp_path)
    child, adult = person(1, age=8), person(2)
    store.commit(("insert", child, None), ("insert", adult, None))
    with mapped_people(spark, tmp_path, ADULTS) as seen:
        seen.until_generation(1)
        assert rows(seen.snapshot_payloads()) == [("insert", "adult", {"id": 2, "label": "Ada 36"})]
        store.commit(("update", person(1, age=18), child))
        store.commit(("update", person(2, age=5), adult), ("insert", person(3, name="Eve"), None))
        store.commit(("update", person(3, name="Eva"), person(3, name="Eve")))
        store.commit(("update", person(4, name="Eva"), {"id": 3}))
        store.commit(("delete", {"id": 4}, None))
        seen.until_position(6)
        assert rows(seen.log_payloads()) == [
            ("insert", "adult", {"id": 1, "label": "Ada 18"}),
            ("delete", "adult", {"id": 2}),
            ("insert", "adult", {"id": 3, "label": "Eve 36"}),
            ("update", "adult", {"id": 3, "label": "Eva 36"}),
            ("delete", "adult", {"id": 3}),
            ("insert", "adult", {"id": 4, "label": "Eva 36"}),
            ("delete", "adult", {"id": 4}),
        ]
        assert seen.stage()["lane"] == "micro-batch"
        store.commit(("insert", person(5), None))
        seen.until(lambda: _acknowledged(tmp_path) >= 6, "the acknowledgement")
        seen.until_position(7)
        seen.until(lambda: bool(seen.stage()["latency_ms"]), "the latency")
    assert seen.stage()["state"] == "stopped"


def _acknowledged(folder: Path) -> int:
    file = folder / "acknowledged"
    return int(file.read_text() or "0") if file.exists() else 0


def test_a_change_that_sql_cannot_take_is_told_with_its_key_and_passes_once_corrected(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = PeopleFile(tmp_path)
    store.commit(("insert", person(1, name="7"), None))
    mapping: dict[str, object] = {"select": ["id"], "columns": {"n": {"sql": "CAST(name AS INT)", "type": "int8"}}}
    with mapped_people(spark, tmp_path, mapping) as seen:
        seen.until_generation(1)
        store.commit(("insert", person(2, name="8"), None))
        seen.until_position(2)
        store.commit(("insert", person(3, name="nine"), None))
        seen.until(lambda: seen.error_code() == "mapping-failed", "the error")
        error = seen.stage()["error"]
        assert isinstance(error, dict)
        assert error["where"] == "mapping.person.columns.n, table person, column n"
        assert "CAST_INVALID_INPUT" in error["message"]
    mended: dict[str, object] = {**mapping, "columns": {"n": {"sql": "try_cast(name AS INT)", "type": "int8"}}}
    with mapped_people(spark, tmp_path, mended) as seen:
        seen.until_position(3)
        assert rows(seen.log_payloads()) == [
            ("insert", "person", {"id": 2, "n": 8}),
            ("insert", "person", {"id": 3, "n": None}),
        ]


def test_a_reader_that_dies_or_fails_is_started_again_where_the_log_ends(spark: SparkSession, tmp_path: Path) -> None:
    store = PeopleFile(tmp_path)
    store.commit(("insert", person(1), None))
    with mapped_people(spark, tmp_path, ADULTS) as seen:
        seen.until_generation(1)
        store.commit(("insert", person(2), None))
        seen.until_position(2)
        (tmp_path / "kill").touch()
        store.commit(("insert", person(3), None))
        seen.until_position(3)
        assert not (tmp_path / "kill").exists()
        (tmp_path / "fail").touch()
        seen.until(lambda: seen.error_code() == "adapter-failed", "the error")
        error = seen.stage()["error"]
        assert isinstance(error, dict)
        assert "the store hung up" in error["message"]
        store.commit(("insert", person(4), None))
        seen.until_position(4)
        assert [row for _, _, row in rows(seen.log_payloads())] == [
            {"id": number, "label": "Ada 36"} for number in (2, 3, 4)
        ]
