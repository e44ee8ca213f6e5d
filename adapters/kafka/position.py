"""The position of a reader of Kafka topics: a vector of offsets, and what open transactions leave behind it. Pure.

Without transaction metadata, `offsets` has the next offset of each partition, and `read`, `passed` and `ended_from` are
empty.

With transaction metadata, the records of a transaction are in several partitions, mixed with those of others. In each
data partition, `offsets` is then before the first record of a transaction that was not passed on; in the transaction
topic it is after the last END that was passed on. Some records after `offsets` were passed on already. While
transactions are open, these fields say which:

- `read`: how far the partitions had been read;
- `ended_from`: the first offset of the transaction topic with an END of a transaction that has records after `offsets`;
- `passed`: up to which offset records of no transaction were passed on.

`moved` are the topics with keys that are, or after partitions were added may be, in several partitions, with the
settings by which those are ordered (`KafkaSettings.ordering`). It is None in positions of versions that did not check
for such keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from adapters.kafka.records.catalog import Catalog
from changesource_sdk import AdapterError, Position

Offsets = Mapping[str, tuple[int, ...]]
"""Offsets by topic and partition number."""


@dataclass(frozen=True, slots=True)
class KafkaPosition:
    """Invariant: every record before `offsets` was passed on; `catalog` has the tables of consumers at that point."""

    offsets: Offsets
    topic_ids: Mapping[str, str]
    catalog: Catalog
    read: Offsets = field(default_factory=dict)
    passed: Offsets = field(default_factory=dict)
    ended_from: int | None = None
    moved: Mapping[str, str] | None = field(default_factory=dict)

    def to_json(self) -> Position:
        """The position as the log stores it."""
        fields: dict[str, Position] = {
            "offsets": _listed(self.offsets),
            "topics": dict(self.topic_ids),
            "tables": self.catalog.as_json,
        }
        if self.read:
            fields["read"] = _listed(self.read)
        if self.passed:
            fields["passed"] = _listed(self.passed)
        if self.ended_from is not None:
            fields["ended_from"] = self.ended_from
        if self.moved is not None:
            fields["moved"] = dict(self.moved)
        return fields

    @classmethod
    def from_json(cls, position: Position) -> KafkaPosition:
        """Raises `AdapterError` for a position of another adapter."""
        match position:
            case {"offsets": dict(offsets), "topics": dict(ids), "tables": tables, **rest}:
                names = {topic: str(identifier) for topic, identifier in ids.items()}
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
    mapping = offsets if isinstance(offsets, dict) else {}
    lists = {topic: numbers for topic, numbers in mapping.items() if isinstance(numbers, list)}
    return {topic: tuple(n for n in numbers if isinstance(n, int)) for topic, numbers in lists.items()}
