"""Offset vectors as JSON and back."""

from __future__ import annotations

import pytest

from adapters.kafka.position import KafkaPosition
from adapters.kafka.records.catalog import Catalog, TopicTable
from adapters.kafka.types import Encoded
from changesource_sdk.errors import AdapterError
from changesource_sdk.positions import Position, from_text, to_text

TABLES = Catalog(
    [
        TopicTable.of("a", "item", {"id": Encoded("int8"), "due": Encoded("date", "days")}, ["id"], is_closed=True),
        TopicTable.of("b", "note", {"id": Encoded("text")}, ["id"], key_format="text"),
    ]
)


@pytest.mark.parametrize(
    "vector",
    [
        KafkaPosition({"a": (0,)}, {}, Catalog([])),
        KafkaPosition({"a": (1, 2), "b": (3,)}, {"a": "id-a", "b": "id-b"}, TABLES),
        KafkaPosition({"a": (1,), "t": (9,)}, {"a": "id"}, TABLES, read={"a": (5,)}, passed={"a": (4,)}, ended_from=7),
    ],
)
def test_a_vector_comes_back_from_the_log(vector: KafkaPosition) -> None:
    assert KafkaPosition.from_json(from_text(to_text(vector.to_json()))) == vector


def test_equal_vectors_have_equal_texts() -> None:
    one = KafkaPosition({"a": (1,), "b": (2,)}, {"a": "x", "b": "y"}, Catalog([]))
    other = KafkaPosition({"b": (2,), "a": (1,)}, {"b": "y", "a": "x"}, Catalog([]))
    assert to_text(one.to_json()) == to_text(other.to_json())


@pytest.mark.parametrize("position", [None, 7, "text", {"lsn": 1}, {"offsets": {}, "topics": {}, "tables": [1]}])
def test_the_position_of_another_adapter_is_refused(position: Position) -> None:
    with pytest.raises(AdapterError, match="position"):
        KafkaPosition.from_json(position)
