"""Offset vectors as JSON and back."""

from __future__ import annotations

import pytest

from adapters.kafka.position import Vector
from changesource_sdk.errors import AdapterError
from changesource_sdk.positions import Position, from_text, to_text


@pytest.mark.parametrize(
    "vector",
    [
        Vector({"a": (0,)}),
        Vector({"a": (1, 2), "b": (3,)}, {"a": "id-a", "b": "id-b"}),
        Vector({"a": (1,)}, {}, frozenset({"7:1", "7:2"})),
    ],
)
def test_a_vector_comes_back_from_the_log(vector: Vector) -> None:
    assert Vector.at(from_text(to_text(vector.position()))) == vector


def test_equal_vectors_have_equal_texts() -> None:
    one = Vector({"a": (1,), "b": (2,)}, finished=frozenset(["x", "y"]))
    other = Vector({"b": (2,), "a": (1,)}, finished=frozenset(["y", "x"]))
    assert to_text(one.position()) == to_text(other.position())


@pytest.mark.parametrize("position", [None, 7, "text", {"lsn": 1}])
def test_the_position_of_another_adapter_is_refused(position: Position) -> None:
    with pytest.raises(AdapterError, match="not one of the Kafka adapter's"):
        Vector.at(position)
