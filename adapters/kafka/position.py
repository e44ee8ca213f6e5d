"""Where to read on: the position of this adapter, an offset vector with what it leaves open. Pure.

A transaction's records lie in several partitions between those of others. The vector therefore stands, in each
partition, before the first record of a transaction that was not passed on yet; in the transaction topic it stands
behind the last END that was passed on. While transactions are open, more is needed to tell what lies behind the vector
and was passed on already: `read`, how far the partitions had been read; `ended_from`, from where on the transaction
topic names transactions with records there; `passed`, up to where records of no transaction were passed on.

Without transaction metadata nothing is left open: the vector is the next offset of each partition, and that is all.

`moved` are the topics with keys that lie, or since partitions were added may lie, in several partitions, with the
settings by which these are ordered (`KafkaSettings.ordering`). A position that was written before they were looked for
has None: nobody knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from adapters.kafka.records.catalog import Catalog
from changesource_sdk import AdapterError, Position

Offsets = Mapping[str, tuple[int, ...]]
"""Offsets by topic and partition number."""


@dataclass(frozen=True, slots=True)
class Vector:
    """Invariant: every record before `offsets` was passed on; `catalog` is what consumers have there."""

    offsets: Offsets
    topic_ids: Mapping[str, str]
    catalog: Catalog
    read: Offsets = field(default_factory=dict)
    passed: Offsets = field(default_factory=dict)
    ended_from: int | None = None
    moved: Mapping[str, str] | None = field(default_factory=dict)

    def position(self) -> Position:
        """The vector as it is stored in the log."""
        found: dict[str, Position] = {
            "offsets": _listed(self.offsets),
            "topics": dict(self.topic_ids),
            "tables": self.catalog.as_json,
        }
        if self.read:
            found["read"] = _listed(self.read)
        if self.passed:
            found["passed"] = _listed(self.passed)
        if self.ended_from is not None:
            found["ended_from"] = self.ended_from
        if self.moved is not None:
            found["moved"] = dict(self.moved)
        return found

    @classmethod
    def at(cls, position: Position) -> Vector:
        """The vector back from what the log holds."""
        match position:
            case {"offsets": dict(offsets), "topics": dict(ids), "tables": tables, **rest}:
                names = {topic: str(found) for topic, found in ids.items()}
                read, passed = (_numbers(rest.get(name, {})) for name in ("read", "passed"))
                ended = rest.get("ended_from")
                ended_from = ended if isinstance(ended, int) else None
                listed = rest.get("moved")
                moved = {topic: str(by) for topic, by in listed.items()} if isinstance(listed, dict) else None
                return cls(_numbers(offsets), names, Catalog.from_json(tables), read, passed, ended_from, moved)
        raise AdapterError(
            "position-unknown",
            "the position in the log is not one of the Kafka adapter's",
            fix="use a state directory of its own for each adapter",
        )


def _listed(offsets: Offsets) -> dict[str, Position]:
    return {topic: list(numbers) for topic, numbers in offsets.items()}


def _numbers(offsets: object) -> dict[str, tuple[int, ...]]:
    found = offsets if isinstance(offsets, dict) else {}
    lists = {topic: numbers for topic, numbers in found.items() if isinstance(numbers, list)}
    return {topic: tuple(n for n in numbers if isinstance(n, int)) for topic, numbers in lists.items()}
