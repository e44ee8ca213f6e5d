"""Following real topics: the adapter's changes, read in a thread, with everything seen so far at hand."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

from adapters.kafka import KafkaAdapter
from changesource_sdk.adapter import Delete, Insert, Position, Row, Transaction, Update
from tests.support.peers.kafka_broker import KafkaBroker
from tests.support.waiting import until

PATIENCE_S = 90.0


class Following:
    """Reads on from a position until closed. Invariant: `transactions` only grows, in the order they came."""

    def __init__(self, adapter: KafkaAdapter, after: Position) -> None:
        self.transactions: list[Transaction] = []
        self.error: BaseException | None = None
        self._adapter = adapter
        self._thread = threading.Thread(target=self._run, args=(after,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def position(self) -> Position:
        return self.transactions[-1].position

    def close(self) -> None:
        self._adapter.close()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "changes() goes on after close()"

    def rows(self) -> dict[object, Row]:
        """What the changes leave, by the column `id`."""
        found: dict[object, Row] = {}
        for transaction in list(self.transactions):
            for change in transaction.changes:
                match change:
                    case Insert(_, row) | Update(_, row):
                        found[row["id"]] = {**found.get(row["id"], {}), **row}
                    case Delete(_, key):
                        found.pop(key["id"], None)
        return found

    def ids(self) -> list[object]:
        """The column `id` of every row that came, in order."""
        rows = [change for one in list(self.transactions) for change in one.changes]
        return [change.row["id"] for change in rows if isinstance(change, Insert | Update)]

    def wait_for_ids(self, expected: list[object]) -> None:
        """Wait until as many rows have come, and see that they are these."""
        self.wait(lambda: len(self.ids()) >= len(expected), f"rows {expected}")
        assert self.ids() == expected

    def wait(self, ask: Callable[[], object], what: str) -> None:
        until(ask, what, seconds=PATIENCE_S, alive=self._alive)

    def wait_for_error(self) -> BaseException:
        until(lambda: not self._thread.is_alive(), "changes() to fail", seconds=PATIENCE_S)
        assert self.error is not None
        return self.error

    def _alive(self) -> None:
        if self.error is not None:
            raise AssertionError(f"following failed: {self.error!r}") from self.error

    def _run(self, after: Position) -> None:
        try:
            for transaction in self._adapter.changes(after):
                changes = list(transaction.changes)
                self.transactions.append(Transaction(transaction.position, changes, transaction.commit_time_ms))
        except BaseException as error:
            self.error = error


def write(broker: KafkaBroker, topic: str, *numbers: int, partition: int = 0) -> None:
    """Plain rows with these ids, acknowledged by the broker."""
    with broker.producer() as producer:
        for number in numbers:
            value = json.dumps({"id": number, "name": f"n{number}"}).encode()
            producer.send(topic, key=str(number).encode(), value=value, partition=partition)


def an_adapter(broker: KafkaBroker, topics: str, **settings: object) -> KafkaAdapter:
    """An adapter for plain rows unless told otherwise."""
    return KafkaAdapter(broker.bootstrap, topics, **{"format": "upsert", **settings})


def begin_at(adapter: KafkaAdapter) -> Position:
    """The position of a snapshot taken now."""
    return adapter.snapshot().position
