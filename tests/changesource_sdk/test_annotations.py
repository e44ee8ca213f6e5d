"""Columns from annotations and from values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import pytest

from changesource_sdk import Column, Table, table_of, table_of_rows
from changesource_sdk.annotations import column_of
from changesource_sdk.errors import InvalidSchema


class Color(Enum):
    RED = "red"


class Words(str):
    """A text of a kind of its own."""


@dataclass
class SupportTicket:
    id: str
    title: str
    points: int | None = None
    labels: list[str] | None = None


class Point(NamedTuple):
    x: float
    y: float


class Row(TypedDict):
    id: int
    at: datetime


def test_a_class_becomes_a_table() -> None:
    assert table_of(SupportTicket) == Table(
        "support_ticket",
        [
            Column("id", str, optional=False),
            Column("title", str, optional=False),
            Column("points", int),
            Column("labels", "json"),
        ],
    )


def test_any_class_with_annotations_will_do() -> None:
    assert table_of(Point, key=("x", "y")).key == ("x", "y")
    assert [column.data_type for column in table_of(Row, "event").columns] == ["int8", "timestamptz"]


@pytest.mark.parametrize(
    ("annotation", "data_type", "is_optional"),
    [
        (bool, "bool", False),
        (date | None, "date", True),
        (Decimal, "numeric", False),
        (UUID, "uuid", False),
        (bytes, "bytea", False),
        (dict[str, int], "json", False),
        (tuple[int, ...], "json", False),
        (Color, "text", False),
        (Words, "text", False),
        (Literal["open", "closed"], "text", False),
        (int | float, "float8", False),
        (dict[str, int] | list[int] | None, "json", True),
        (Any, "json", False),
    ],
)
def test_annotations_stand_for_types(annotation: object, data_type: str, is_optional: bool) -> None:
    column = column_of("c", annotation)
    assert (column.data_type, column.optional) == (data_type, is_optional)


@pytest.mark.parametrize("annotation", [int | str, complex, "not resolved"])
def test_what_stands_for_no_type_is_refused_with_the_column(annotation: object) -> None:
    with pytest.raises(InvalidSchema) as raised:
        column_of("size", annotation)
    assert "column size" in raised.value.where
    assert raised.value.fix


def test_rows_become_a_table() -> None:
    rows: list[dict[str, object]] = [
        {"id": 1, "name": None, "at": None, "score": 1},
        {"id": 2, "name": "two", "at": datetime(2026, 1, 1, tzinfo=UTC), "score": 1.5, "tags": ["a"], "never": None},
    ]
    found = {column.name: column.data_type for column in table_of_rows("thing", rows).columns}
    assert found == {
        "id": "int8",
        "name": "text",
        "at": "timestamptz",
        "score": "float8",
        "tags": "json",
        "never": "text",
    }


def test_rows_that_disagree_are_refused_by_table_and_column() -> None:
    with pytest.raises(InvalidSchema) as raised:
        table_of_rows("thing", [{"id": 1}, {"id": "one"}])
    assert raised.value.message == "int and str stands for no column type"
    assert raised.value.where == "table thing, column id"
