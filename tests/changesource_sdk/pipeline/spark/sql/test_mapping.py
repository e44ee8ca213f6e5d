"""Spark SQL in mappings: what it sees, what comes back, and what is refused, on a real session."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from changesource_sdk.errors import ConfigurationError
from changesource_sdk.pipeline.mapping.declare import MappedColumn, Sql, TableMapping
from changesource_sdk.pipeline.mapping.table import map_table
from changesource_sdk.pipeline.source import SourceSpec
from changesource_sdk.pipeline.spark.sql.mapping import SqlInputs, check_sql
from tests.changesource_sdk.pipeline.runner_fixtures import Watched
from tests.changesource_sdk.pipeline.spark.people import PERSON, PeopleFile
from tests.changesource_sdk.pipeline.spark.spark_runner import on_spark
from tests.changesource_sdk.pipeline.test_mapped import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BORN = 1_700_000_000_250
"""2023-11-14 22:13:20.250 in UTC."""


def person(number: int, **given: object) -> dict[str, object]:
    return {"id": number, "name": "Ada", "age": 36, "born": BORN, "tags": {"a": [number]}, **given}


def mapped_people(
    session: SparkSession, folder: Path, mapping: dict[str, object], snapshot_after: int = 1, on_bad_value: str = ""
) -> AbstractContextManager[Watched]:
    """A Spark runner over the people in `folder`."""
    own = {"folder": str(folder), "snapshot_after": snapshot_after}
    adapter = "tests.changesource_sdk.pipeline.spark.people:PeopleAdapter"
    source = SourceSpec(adapter, own, mapping={"person": mapping}, on_bad_value=on_bad_value)
    return on_spark(session, source, folder / "state")


EXPRESSIONS = {
    "age + 1": 37,
    "upper(name)": "ADA",
    "born": BORN,
    "born + INTERVAL 1 MICROSECOND": BORN + 0.001,
    "date_format(born, 'yyyy-MM-dd HH:mm')": "2023-11-14 22:13",
    "get_json_object(tags, '$.a[0]')": "1",
    "array(age, id)": "[36,1]",
    "named_struct('n', name)": '{"n":"Ada"}',
    "age > 18": True,
    "CAST(NULL AS timestamp)": None,
}


def test_sql_sees_columns_in_spark_s_types_and_results_travel_whole(spark: SparkSession) -> None:
    columns = {f"x{n}": MappedColumn(Sql(sql), "text") for n, sql in enumerate(EXPRESSIONS)}
    inputs = SqlInputs(PERSON)
    selected, reader = check_sql(spark, map_table(PERSON, TableMapping(columns=columns)))
    people = [person(1), person(1, born=datetime.fromtimestamp(BORN / 1000, UTC))]
    found = spark.createDataFrame(map(inputs.values, people), inputs.schema()).select(*selected).collect()
    results = [list(reader.read(row).values()) for row in found]
    assert results == [list(EXPRESSIONS.values())] * 2


@pytest.mark.parametrize(
    ("mapping", "where", "said"),
    [
        (TableMapping(filter=Sql("agee > 18")), "mapping.person.filter, table person", "agee"),
        (TableMapping(filter=Sql("age >")), "mapping.person.filter", "PARSE_SYNTAX_ERROR"),
        (TableMapping(filter=Sql("age")), "mapping.person.filter", "bigint"),
        (
            TableMapping(columns={"x": MappedColumn(Sql("nope(age)"), "int8")}),
            "mapping.person.columns.x, table person, column x",
            "nope",
        ),
        (
            TableMapping(columns={"x": MappedColumn(Sql("max(age)"), "int8")}),
            "mapping.person.columns.x",
            "INVALID_WHERE",
        ),
        (
            TableMapping(columns={"x": MappedColumn(Sql("explode(array(1, 2))"), "int8")}),
            "mapping.person.columns.x",
            "",
        ),
        (
            TableMapping(columns={"x": MappedColumn(Sql("row_number() over (order by id)"), "int8")}),
            "mapping.person.columns.x",
            "",
        ),
        (TableMapping(columns={"x": MappedColumn(Sql("rand()"), "float8")}), "mapping.person.columns.x", "each time"),
    ],
)
def test_what_spark_refuses_is_told_with_key_and_its_words(
    spark: SparkSession, mapping: TableMapping, where: str, said: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_sql(spark, map_table(PERSON, mapping))
    assert refused.value.where.startswith(where)
    assert said in refused.value.message
    assert refused.value.fix


def test_a_snapshot_is_filtered_and_computed_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    PeopleFile(tmp_path).commit(
        *(("insert", person(number, age=number), None) for number in range(10, 30)),
    )
    mapping: dict[str, object] = {
        "name": "adult",
        "select": ["id", "tags"],
        "filter": {"sql": "age >= 18"},
        "columns": {"label": {"sql": "concat(name, ' ', age)", "type": "text"}},
    }
    with mapped_people(spark, tmp_path, mapping) as seen:
        seen.until_generation(1)
        found = sorted(rows(seen.snapshot_payloads()), key=str)
        assert found == [
            ("insert", "adult", {"id": n, "tags": f'{{"a":[{n}]}}', "label": f"Ada {n}"}) for n in range(18, 30)
        ]


def test_sql_that_fails_on_a_row_is_told_with_its_key(spark: SparkSession, tmp_path: Path) -> None:
    PeopleFile(tmp_path).commit(("insert", person(1), None))
    mapping: dict[str, object] = {"columns": {"n": {"sql": "CAST(name AS INT)", "type": "int8"}}}
    with mapped_people(spark, tmp_path, mapping) as seen:
        seen.until(lambda: seen.error_code() == "mapping-failed", "the error")
        error = seen.stage()["error"]
        assert isinstance(error, dict)
        assert error["where"] == "mapping.person.columns.n, table person, column n"
        assert "CAST_INVALID_INPUT" in error["message"]


def test_mappings_by_functions_run_in_the_resident_lane(spark: SparkSession, tmp_path: Path) -> None:
    store = PeopleFile(tmp_path)
    store.commit(("insert", person(1), None), ("insert", person(2, age=8), None))
    is_adult = {"function": "tests.changesource_sdk.pipeline.mapping.people:is_adult"}
    with mapped_people(spark, tmp_path, {"select": ["id", "name"], "filter": is_adult}) as seen:
        seen.until_generation(1)
        assert rows(seen.snapshot_payloads()) == [("insert", "person", {"id": 1, "name": "Ada"})]
        store.commit(("update", person(2, age=18), None))
        seen.until_position(2)
        assert rows(seen.log_payloads()) == [("insert", "person", {"id": 2, "name": "Ada"})]
        assert seen.stage()["lane"] == ""
