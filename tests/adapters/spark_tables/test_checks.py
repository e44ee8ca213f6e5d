"""What `changesource doctor` says of tables before their first sync: each mistake with what it is and what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adapters.spark_tables import SparkTablesAdapter
from changesource_cli.commands.doctor import examine
from changesource_sdk.adapter import Check
from changesource_sdk.config import ServeConfig
from tests.support.workloads.delta_lake import Lake, people

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]

Section = Mapping[str, object]


def findings(tmp_path: Path, section: Section) -> list[Check]:
    adapter = SparkTablesAdapter({"items": {"key": "id", **section}}, str(tmp_path / "state"))
    return list(adapter.examine())


def _parquet(folder: Path, **columns: object) -> Section:
    pq.write_table(pa.table(columns), folder / "items.parquet")
    return {"parquet": str(folder)}


def _repeated(folder: Path) -> Section:
    return _parquet(folder, id=[1, 1, 1, 2, 2, 3, 3, 4, 4, 5], t=list("abcdefghij"))


def _null(folder: Path) -> Section:
    return _parquet(folder, id=pa.array([1, None, None, 2, 2], pa.int64()), t=list("abcde"))


def _pairs(folder: Path) -> Section:
    return {**_parquet(folder, a=[1, 1, 1], b=["x", "x", "y"]), "key": "a, b"}


def _missing(folder: Path) -> Section:
    return {"delta": str(folder / "nowhere")}


def _damaged(folder: Path) -> Section:
    (folder / "items.parquet").write_bytes(b"PAR1 this is no parquet file PAR1")
    return {"parquet": str(folder)}


def _bad_line(folder: Path) -> Section:
    (folder / "items.csv").write_text("id,n\n1,2\n2,many\n")
    return {"csv": str(folder), "options": {"schema": "id bigint, n int"}}


def _wrong_query(folder: Path) -> Section:
    return {"query": "SELECT id, nme FROM (SELECT id, 'x' AS name FROM range(3))"}


def _failing_query(folder: Path) -> Section:
    return {"query": "SELECT id, 1 / (id - 1) AS x FROM range(3)"}


def _key_that_is_none(folder: Path) -> Section:
    return {**_parquet(folder, idd=[1]), "key": "id"}


def _key_of_no_value(folder: Path) -> Section:
    return {"query": "SELECT array(id) AS id FROM range(3)"}


@pytest.mark.parametrize(
    ("make", "said", "fix"),
    [
        (_repeated, "4 keys are used more than once (id), such as 1 (3 times), 2 (2 times), 3 (2 times)", "unique"),
        (_null, "2 rows have a null in the key (id), such as {id: None, t: '", "null"),
        (_null, "'}; 1 key is used more than once (id), such as 2 (2 times)", "null"),
        (_pairs, "1 key is used more than once (a, b), such as (1, 'x') (2 times)", "unique"),
        (_missing, "there is no table at", "create the table"),
        (_damaged, "items.parquet", "see that its files are there, whole"),
        (_bad_line, "many", "see that its files are there, whole"),
        (_wrong_query, "nme", "tables.items.query"),
        (_failing_query, "DIVIDE_BY_ZERO", "tables.items.query"),
        (_key_that_is_none, "there is no column 'id'", "did you mean"),
        (_key_of_no_value, "a column of type array<bigint> cannot be a key", "cast it in a query"),
    ],
)
def test_a_mistake_is_told_with_what_to_do(
    tmp_path: Path, make: Callable[[Path], Section], said: str, fix: str
) -> None:
    folder = tmp_path / "items"
    folder.mkdir()
    (failed,) = [check for check in findings(tmp_path, make(folder)) if not check.ok]
    assert failed.name == "table items"
    assert said in failed.message
    assert fix in failed.fix


def test_columns_that_clients_do_not_see_are_told_and_harm_nothing(tmp_path: Path, spark: SparkSession) -> None:
    found = findings(tmp_path, {"query": "SELECT id, CAST('x' AS BINARY) AS raw FROM range(3)"})
    assert all(check.ok for check in found)
    told = [check.message for check in found]
    assert "column raw (binary) is replicated but not synced to clients" in told
    assert "3 rows can be read, and every one has its own key" in told


@pytest.mark.parametrize(
    ("mapping", "said", "fix"),
    [
        ({"filter": {"sql": "nme <> 'x'"}}, "UNRESOLVED_COLUMN", "it may use the columns id, name"),
        ({"columns": {"name": {"sql": "upper(name"}}}, "PARSE_SYNTAX_ERROR", "correct the SQL"),
        ({"columns": {"name": {"sql": "rand()"}}}, "another result each time", "only columns and constants"),
        ({"filter": {"sql": "upper(name)"}}, "a filter must be true or false", "compare"),
        ({"select": ["id", "nme"]}, "nme", "name"),
    ],
)
def test_the_doctor_tells_a_wrong_mapping_in_sparks_words_and_ours(
    tmp_path: Path, mapping: Section, said: str, fix: str
) -> None:
    lake = Lake(tmp_path / "people", people((1, "Ada")))
    tables = {"tables.people.delta": str(lake.path), "tables.people.key": "id"}
    config = ServeConfig(adapter="spark-tables", state=tmp_path / "state", settings=tables, mapping={"people": mapping})
    (found,) = [finding for finding in examine(config) if finding.check == "mapping"]
    assert not found.ok
    assert said in found.message
    assert "mapping.people" in found.message
    assert fix in found.fix
