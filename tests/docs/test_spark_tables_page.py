"""What the page on lakehouse tables shows can be used as it is written."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path

from adapters.spark_tables import SparkTablesAdapter
from adapters.spark_tables.settings import KINDS, OTHER_KEYS
from changesource_sdk.config import load, parse_pairs
from tests.docs.fences import blocks

PAGE = "docs/how-to/spark-tables.md"
TEXT = (Path(__file__).parents[2] / PAGE).read_text()


def test_the_file_makes_the_adapter() -> None:
    config = load(toml=blocks(PAGE, "toml")[0], environment={}, flags={}).config
    assert config.adapter == "spark-tables"
    adapter = SparkTablesAdapter(**config.settings)  # type: ignore[arg-type]
    assert [table.name for table in adapter._tables] == ["orders", "customers", "revenue"]


def test_the_one_line_makes_the_adapter() -> None:
    (line,) = [block for block in blocks(PAGE, "sh") if "--set" in block]
    words = shlex.split(line)
    pairs = [word for flag, word in pairwise(words) if flag == "--set"]
    adapter = SparkTablesAdapter(**parse_pairs(pairs))  # type: ignore[arg-type]
    assert [table.location for table in adapter._tables] == ["/lake/orders"]


def test_every_key_of_a_table_is_described() -> None:
    assert [key for key in (*KINDS, *OTHER_KEYS) if not re.search(rf"^\|.*`{key}`.*\|", TEXT, re.M)] == []
