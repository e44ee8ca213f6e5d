"""What the page on lakehouse tables shows can be used as it is written."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyarrow import parquet

from adapters.spark_tables import SparkTablesAdapter
from adapters.spark_tables.settings import KINDS, OTHER_KEYS
from changesource_sdk.config import parse_pairs
from tests.docs.fences import block, blocks_of, commands, configuration
from tests.support.peers.spark_serving import FEW_PARTITIONS, SPARK_SECONDS
from tests.support.ports import free_port
from tests.support.reader import Reader

PAGE = "docs/how-to/spark-tables.md"
TEXT = (Path(__file__).parents[3] / PAGE).read_text()


def test_the_file_makes_the_adapter() -> None:
    config = configuration(block(PAGE, "# changesource.toml"))
    assert config.adapter == "spark-tables"
    adapter = SparkTablesAdapter(**config.settings)  # type: ignore[arg-type]
    assert [table.name for table in adapter._tables] == ["orders", "customers", "revenue"]


def test_the_one_line_makes_the_adapter() -> None:
    (line,) = [block.text for block in blocks_of(PAGE) if block.is_shell and "--set" in block.text]
    words = shlex.split(line)
    pairs = [word for flag, word in pairwise(words) if flag == "--set"]
    adapter = SparkTablesAdapter(**parse_pairs(pairs))  # type: ignore[arg-type]
    assert [table.location for table in adapter._tables] == ["/lake/orders"]


def test_every_key_of_a_table_is_described() -> None:
    assert [key for key in (*KINDS, *OTHER_KEYS) if not re.search(rf"^\|.*`{key}`.*\|", TEXT, re.M)] == []


@pytest.mark.slow
def test_the_file_is_examined_and_served(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    feed = {"delta.enableChangeDataFeed": "true"}
    orders = pa.table({"id": [1, 2, 3], "customer": ["ann", "ann", "bob"], "amount": [10.0, 5.0, 2.5]})
    write_deltalake(str(lake / "orders"), orders, configuration=feed)
    (lake / "customers").mkdir()
    parquet.write_table(pa.table({"id": ["ann", "bob"]}), lake / "customers" / "0.parquet")
    places = {"/lake/": f"{lake}/", "127.0.0.1:4810": f"127.0.0.1:{free_port()}"}
    reader = Reader(tmp_path / "reading", runner="spark", places=places)
    reader.write("changesource.toml", block(PAGE, "# changesource.toml"))
    doctor, serve = commands(block(PAGE, "changesource doctor"))
    reader.run(doctor, seconds=SPARK_SECONDS)
    with reader.serve(f"{serve} {shlex.join(FEW_PARTITIONS)}", seconds=SPARK_SECONDS) as address:
        told = reader.run(f"changesource tail {address} --from start --limit 1 --json")
    assert [f'"{name}"' in told for name in ("orders", "customers", "revenue")] == [True] * 3
