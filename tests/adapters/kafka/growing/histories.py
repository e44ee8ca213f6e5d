"""Random histories of a topic that grows, followed all the while, against a model of what its records leave.

Keys move with the number of partitions, and some producers are late to notice; times mostly grow, and tie or go back
now and then; rows are deleted. The model knows the last record of each key in every partition and takes the one with
the latest time; where two share it, the key has no row (`unordered_keys=set-aside`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from adapters.kafka.position import KafkaPosition
from changesource_sdk.errors import AdapterError, ResyncRequired
from changesource_sdk.positions import Position
from tests.adapters.kafka.following import Following
from tests.adapters.kafka.growing.topics import Written, followed, grown_adapter, grown_topic, names, state, write
from tests.support.peers.kafka_broker import KafkaBroker

GROWTH = (1, 2, 5)
KEYS = 10
RECORDS = 30
SENTINELS = 1_000
"""Ids from here on are written once: when they come, all before them has."""
BEGIN_MS = 1_700_000_000_000


class GrownHistory:
    """One topic, what was written to it, and what a follower has."""

    def __init__(self, broker: KafkaBroker, seed: int, **topic_settings: str) -> None:
        self._broker = broker
        self._random = random.Random(seed)
        self.where = f"seed {seed}"
        self.topic = grown_topic(broker, 1, **topic_settings)
        self._written: list[list[Written]] = []
        self._time_ms = BEGIN_MS
        self._sentinels = SENTINELS

    def run(self) -> None:
        """Grow, and compare what is followed and what is read from the start with the model at every step."""
        self._grow(GROWTH[0])
        self._write(1)
        rows, position = state(self._adapter())
        assert rows == self.model(), self.where
        for partitions in GROWTH:
            self._grow(partitions)
            for _ in range(2):
                rows, position = self._follow(rows, position)
        self.compare()

    def compare(self) -> None:
        """Whoever reads the topic from its start sees the model, or is refused."""
        assert names(self._adapter()) == self.model(), self.where
        strict = self._adapter(unordered_keys="refuse")
        if self._unordered():
            with pytest.raises(AdapterError, match="nothing says which is the newest"):
                names(strict)
        else:
            assert names(strict) == self.model(), self.where

    def touch(self) -> None:
        """One more record in each partition, so much later that the broker closes the segments before it."""
        self._time_ms += 60_000
        self._write_last(len(self._written), [])

    def _follow(self, rows: dict[object, object], position: Position) -> tuple[dict[object, object], Position]:
        """Follow while more is written; a follower that must read the topic again does."""
        with Following(self._adapter(), position) as following:
            self._write(len(self._written))
            last = set(range(self._sentinels - len(self._written), self._sentinels))
            try:
                following.wait(lambda: last <= set(following.ids()), f"the last records, {self.where}")
            except AssertionError:
                if not isinstance(following.error, ResyncRequired):
                    raise
                rows, position = state(self._adapter())
            else:
                rows, position = followed(rows, following), following.position
        assert rows == self.model(), self.where
        assert sum(KafkaPosition.from_json(position).offsets[self.topic]) == sum(map(len, self._written)), self.where
        return rows, position

    def model(self) -> dict[object, object]:
        """Names by id."""
        found = {number: _newest(last) for number, last in self._last().items()}
        return {number: one.name for number, one in found.items() if one is not None and one.name is not None}

    def _unordered(self) -> list[int]:
        return [number for number, last in self._last().items() if _newest(last) is None]

    def _last(self) -> dict[int, list[Written]]:
        """By id, the last record in each partition."""
        last: dict[int, list[Written]] = {}
        for records in self._written:
            for number, record in {record.id: record for record in records}.items():
                last.setdefault(number, []).append(record)
        return last

    def _adapter(self, **settings: object):  # type: ignore[no-untyped-def]
        given = {"order_by": "timestamp", "unordered_keys": "set-aside", **settings}
        return grown_adapter(self._broker, self.topic, **given)

    def _grow(self, partitions: int) -> None:
        if len(self._written) not in (0, partitions):
            self._broker.add_partitions(self.topic, partitions)
        self._written += [[] for _ in range(partitions - len(self._written))]

    def _write(self, partitions: int) -> None:
        """Some records, then one in each partition that comes last."""
        self._write_last(partitions, [self._record(number, partitions) for number in range(RECORDS)])

    def _write_last(self, partitions: int, records: list[Written]) -> None:
        for partition in range(partitions):
            records.append(Written(partition, self._sentinels, "last", self._tick()))
            self._sentinels += 1
        for record in records:
            self._written[record.partition].append(record)
        write(self._broker, self.topic, records)

    def _record(self, number: int, partitions: int) -> Written:
        key = self._random.randrange(KEYS)
        # A producer that has not noticed the growth places keys as before.
        known = partitions if self._random.random() < 0.8 else GROWTH[max(0, GROWTH.index(partitions) - 1)]
        name = None if self._random.random() < 0.25 else f"{key}.{number}.{self._random.randrange(100)}"
        return Written((key * 7919 + 11) % known, key, name, self._tick())

    def _tick(self) -> int:
        self._time_ms += self._random.choice([-3, 0, 0, 1, 1, 2, 2, 5])
        return self._time_ms


def _newest(last: Sequence[Written]) -> Written | None:
    if len(last) == 1:
        return last[0]
    latest = max(record.time_ms for record in last)
    found = [record for record in last if record.time_ms == latest]
    return found[0] if len(found) == 1 else None
