"""Transactions as rows of a stream: in pieces that are bounded, whole at their seams, and complete together."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from changesource_sdk.adapter import Insert, Transaction
from changesource_sdk.pipeline.mapping.declare import Sql, TableMapping
from changesource_sdk.pipeline.mapping.table import map_table
from changesource_sdk.pipeline.source import SourceSpec
from changesource_sdk.pipeline.spark.sql.change_source import END, HEAD, ChangesReader, ReaderSpec, StreamRows, pieces
from tests.changesource_sdk.pipeline.spark.people import PERSON, PeopleFile
from tests.changesource_sdk.pipeline.spark.sql.test_mapping import person

MAPPED = map_table(PERSON, TableMapping(filter=Sql("age > 18")))


@given(changes=st.integers(0, 30), most_rows=st.integers(1, 20))
def test_pieces_are_bounded_and_make_up_the_transaction(changes: int, most_rows: int) -> None:
    transaction = Transaction(7, [Insert("person", person(number)) for number in range(changes)])
    found = list(pieces(StreamRows([MAPPED]).of(1, transaction), "7", most_rows))
    assert [piece.position for piece in found] == [None] * (len(found) - 1) + ["7"]
    # One change more than the limit at most, and a change is two rows: itself and the row it tells.
    assert all(len(piece.rows) <= most_rows + 1 for piece in found)
    indices = [row[1] for piece in found for row in piece.rows]
    assert indices == [HEAD, *(number for number in range(changes) for _ in range(2)), END]
    seams = [(before.rows[-1][1], after.rows[0][1]) for before, after in pairwise(found)]
    assert all(last != first for last, first in seams), "a change and its images stay together"


def test_few_large_rows_are_cut_by_their_size() -> None:
    transaction = Transaction(7, [Insert("person", person(number, name="x" * 1000)) for number in range(10)])
    found = list(pieces(StreamRows([MAPPED]).of(1, transaction), "7", most_bytes=5000))
    assert len(found) > 3
    assert all(piece.size < 5000 + 3000 for piece in found)


def test_an_idle_store_still_moves_spark_on_from_its_first_offset(tmp_path: Path) -> None:
    PeopleFile(tmp_path).commit(("insert", person(1), None))
    adapter = "tests.changesource_sdk.pipeline.spark.people:PeopleAdapter"
    source = SourceSpec(adapter, {"folder": str(tmp_path)})
    reader = ChangesReader(ReaderSpec(source, 1, [MAPPED], tmp_path / "durable"))
    first = reader.initialOffset()
    rows, begun = reader.read(first)
    assert (list(rows), begun["position"]) == ([], first["position"])
    assert begun != first, "else Spark asks executors for an empty batch"
    rows, still = reader.read(begun)
    assert (list(rows), still) == ([], begun)
