"""The micro-batch lane on a real session: SQL over changes, in order, once, and with the errors of the other lanes."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from changesource_sdk.adapter import Row
from changesource_sdk.pipeline.spark.lanes.micro_batch import MicroBatchSource
from changesource_sdk.pipeline.spark.sql.batches import Batches
from changesource_sdk.pipeline.spark.sql.change_source import MOST_ROWS
from tests.changesource_sdk.pipeline.spark.people import PeopleFile
from tests.changesource_sdk.pipeline.spark.sql.test_mapping import mapped_people, person
from tests.changesource_sdk.pipeline.test_mapped import rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


def test_rows_with_bad_values_are_left_out_and_come_back(spark: SparkSession, tmp_path: Path) -> None:
    store = PeopleFile(tmp_path)
    # `age` is used by the expressions, `born` is only passed on.
    mapping = {**ADULTS, "select": ["id", "born"]}
    bad_age, bad_born = {**person(1), "age": "old"}, {**person(2), "born": "soon"}
    store.commit(("insert", bad_age, None), ("insert", person(3), None))
    with mapped_people(spark, tmp_path, mapping, on_bad_value="dead-letter") as seen:

        def letters() -> set[str]:
            return {letter.row for letter in seen.log.kept_aside().letters}

        seen.until_generation(1)
        assert [row["id"] for _, _, row in rows(seen.snapshot_payloads())] == [3]
        assert letters() == {"id=1"}
        store.commit(("insert", bad_born, None), ("insert", person(4), None))
        seen.until_position(2)
        assert seen.stage()["lane"] == "micro-batch"
        assert letters() == {"id=1", "id=2"}
        store.commit(("update", {**person(3), "age": "old"}, person(3)), ("update", person(1), bad_age))
        seen.until_position(3)
        assert letters() == {"id=2", "id=3"}
        store.commit(("delete", {**person(3), "age": "old"}, None), ("update", person(2), bad_born))
        seen.until_position(4)
        assert letters() == set()
        sent = [(tag, row["id"]) for tag, _, row in rows(seen.log_payloads())]
        # A delete that consumers do not need is harmless; after it the row is inserted again.
        assert sent[-1] == ("insert", 2)
        assert [each for each in sent if each[1] == 3] == [("delete", 3)]
        assert [each for each in sent if each[1] == 1][-1] == ("insert", 1)
        assert [each for each in sent if each[1] == 4] == [("insert", 4)]


def random_history(seed: int, transactions: int) -> list[list[tuple[str, Row, Row | None]]]:
    """Transactions over a few people; some changes tell the row before, some its key only."""
    chance = random.Random(seed)
    people: dict[int, Row] = {}
    history: list[list[tuple[str, Row, Row | None]]] = []
    for _ in range(transactions):
        changes: list[tuple[str, Row, Row | None]] = []
        for _ in range(chance.randint(1, 3)):
            number, former = chance.randint(1, 6), people.get(chance.randint(1, 6))
            new = person(number, age=chance.choice([None, 5, 17, 18, 60]), name=chance.choice(["Ada", "Eve", None]))
            if former is not None and chance.random() < 0.3:
                changes.append(("delete", former if chance.random() < 0.5 else {"id": former["id"]}, None))
                del people[former["id"]]  # type: ignore[arg-type]
                continue
            if number in people:
                changes.append(("update", new, people[number] if chance.random() < 0.5 else None))
            elif former is not None:
                changes.append(("update", new, former if chance.random() < 0.5 else {"id": former["id"]}))
                del people[former["id"]]  # type: ignore[arg-type]
            else:
                changes.append(("insert", new, None))
            people[number] = new
        history.append(changes)
    return history


def test_snapshot_and_tail_agree_on_a_random_history(spark: SparkSession, tmp_path: Path) -> None:
    seed = int(os.environ.get("MAPPING_SEED", "0"))
    # Whatever the seed leaves, one adult is there at the end.
    history: list[list[tuple[str, Row, Row | None]]] = [*random_history(seed, 60), [("insert", person(7), None)]]
    (tmp_path / "whole").mkdir()
    for folder in (tmp_path, tmp_path / "whole"):
        for changes in history:
            PeopleFile(folder).commit(*changes)
    with mapped_people(spark, tmp_path, ADULTS) as seen:
        seen.until_generation(1)
        seen.until_position(len(history))
        followed = final_rows(seen.snapshot_payloads() + seen.log_payloads())
    with mapped_people(spark, tmp_path / "whole", ADULTS, snapshot_after=len(history)) as seen:
        seen.until_generation(1)
        assert followed == final_rows(seen.snapshot_payloads()), f"seed {seed}"
    assert 7 in followed


def final_rows(payloads: list[bytes]) -> dict[object, Row]:
    """The rows of a consumer after all of these."""
    held: dict[object, Row] = {}
    for payload in payloads:
        match json.loads(payload):
            case ["data", {"tag": "insert", "new": row}]:
                held[row["id"]] = row
            case ["data", {"tag": "update", "new": row, "key": key}]:
                assert held.pop((key or row)["id"]) is not None
                held[row["id"]] = row
            case ["data", {"tag": "delete", "key": key}]:
                held.pop(key["id"], None)
    return held


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


def test_a_transaction_larger_than_a_batch_arrives_whole(spark: SparkSession, tmp_path: Path) -> None:
    store = PeopleFile(tmp_path)
    store.commit(("insert", person(1), None))
    people = 2 * MOST_ROWS // 3
    with mapped_people(spark, tmp_path, ADULTS) as seen:
        seen.until_generation(1)
        store.commit(*(("insert", person(2 + number), None) for number in range(people)))
        store.commit(("insert", person(1_000_000), None))
        seen.until_position(3)
        assert seen.log.state().transactions == 2
        large, small = seen.log.read_after("00", 1 << 30)
        assert (large.changes, small.changes) == (people, 1)
        assert [row["id"] for _, _, row in rows(seen.log_payloads())] == [*range(2, 2 + people), 1_000_000]


@pytest.mark.parametrize("fate", ["delivered twice", "lost before its checkpoint"])
def test_a_batch_that_spark_repeats_is_stored_once(
    fate: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[DataFrame] = []
    original = MicroBatchSource._on_batch

    def on_batch(source: MicroBatchSource, evaluate: Batches, frame: DataFrame) -> None:
        original(source, evaluate, frame)
        batches.append(frame)
        if fate == "delivered twice":
            original(source, evaluate, frame)
        elif len(batches) == 1:
            raise RuntimeError("the log has the batch, and Spark will never know")

    monkeypatch.setattr(MicroBatchSource, "_on_batch", on_batch)
    store = PeopleFile(tmp_path)
    store.commit(("insert", person(1), None))
    with mapped_people(spark, tmp_path, ADULTS) as seen:
        seen.until_generation(1)
        for number in (2, 3, 4):
            store.commit(("insert", person(number), None))
            seen.until_position(number)
        seen.until(lambda: len(batches) >= 2, "another batch")
        assert [row["id"] for _, _, row in rows(seen.log_payloads())] == [2, 3, 4]


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
