"""Where to read on: the position of this adapter, an offset vector with what it leaves open.

A transaction's records lie in several partitions between those of others. The vector therefore stands, in each
partition, before the first record of a transaction that was not passed on yet; records of transactions that were
passed on may lie behind it, and their names are kept (`finished`), so that they are skipped when read again. Without
transaction metadata nothing is ever left open: the vector is the next offset, and `finished` is empty.

As JSON: `{"offsets": {topic: [next offset by partition]}, "topics": {topic: id}, "finished": [transaction, …]}`; the
two latter are left out when empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from changesource_sdk.errors import AdapterError
from changesource_sdk.positions import Position


@dataclass(frozen=True, slots=True)
class Vector:
    """Next offsets by topic and partition number. Invariant: every record before them was passed on."""

    offsets: Mapping[str, tuple[int, ...]]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    finished: frozenset[str] = frozenset()

    def position(self) -> Position:
        """The vector as it is stored in the log."""
        found: dict[str, Position] = {"offsets": {topic: list(ends) for topic, ends in self.offsets.items()}}
        if self.topic_ids:
            found["topics"] = dict(self.topic_ids)
        if self.finished:
            found["finished"] = [*sorted(self.finished)]
        return found

    @classmethod
    def at(cls, position: Position) -> Vector:
        """The vector back from what the log holds."""
        match position:
            case {"offsets": dict(offsets), **rest}:
                ids, finished = rest.get("topics", {}), rest.get("finished", [])
                assert isinstance(ids, dict)
                assert isinstance(finished, list)
                vector = {topic: _numbers(ends) for topic, ends in offsets.items()}
                return cls(vector, {topic: str(found) for topic, found in ids.items()}, frozenset(map(str, finished)))
        raise AdapterError(
            "position-unknown",
            "the position in the log is not one of the Kafka adapter's",
            fix="use a state directory of its own for each adapter",
        )


def _numbers(value: Position) -> tuple[int, ...]:
    assert isinstance(value, list)
    return tuple(int(str(number)) for number in value)
