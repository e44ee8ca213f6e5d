"""A Debezium-shaped load on several topics and partitions: money moves, and transactions overlap.

Every transaction takes from one account, gives to another and writes a line of a ledger that remembers it; later it is
deleted again. Several transactions are open at a time: their records are mixed over the partitions of both tables, and
their ENDs come in the order in which they committed, sometimes before the last of their records. `assert_whole` holds
at every watermark of a consumer that is never shown half a transaction, and at no other.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from typing import Any

from kafka import KafkaProducer

from tests.support.peers.kafka_broker import KafkaBroker
from tests.support.workloads.debezium import Collection, Event, begin, end, field, member

ACCOUNTS = 24
BALANCE = 1_000
OPEN_AT_ONCE = 4
KEPT_LINES = 200
Rows = Mapping[object, Mapping[str, Any]]
Line = dict[str, int]


class Bank:
    """The application and its connector; `accounts` and `ledger` are what the database has committed."""

    def __init__(self, broker: KafkaBroker, seed: int, *, schemas: bool = True) -> None:
        self._broker = broker
        self._random = random.Random(seed)
        prefix = broker.topic_name("bank")
        self.account = Collection(
            f"{prefix}.public.account",
            [field(name, int, optional=False) for name in ("id", "balance", "last")],
            schemas=schemas,
        )
        self.line = Collection(
            f"{prefix}.public.ledger",
            [field(name, int, optional=False) for name in ("id", "source", "target", "amount")],
            schemas=schemas,
        )
        self.transactions = f"{prefix}.transaction"
        broker.create_topic(self.account.topic, 3)
        broker.create_topic(self.line.topic, 2)
        broker.create_topic(self.transactions, 1)
        self.accounts = {n: {"id": n, "balance": BALANCE, "last": 0} for n in range(ACCOUNTS)}
        self.ledger: dict[int, dict[str, int]] = {}
        self.moves = 0

    @property
    def settings(self) -> dict[str, str]:
        """What an adapter follows it with."""
        return {
            "bootstrap": self._broker.bootstrap,
            "topics": f"{self.account.topic},{self.line.topic}",
            "format": "debezium",
            "transaction_topic": self.transactions,
        }

    def open_accounts(self) -> None:
        """What a connector writes first: a read of every row, in no transaction."""
        with self._broker.producer() as producer:
            for row in self.accounts.values():
                self._send(producer, self.account.event("r", None, row))

    def wave(self, producer: KafkaProducer) -> None:
        """Some transactions that overlap, of accounts that none of them shares with another."""
        count = self._random.randint(1, OPEN_AT_ONCE)
        chosen = self._random.sample(range(ACCOUNTS), 2 * count)
        moves = [self._move(*chosen[2 * n : 2 * n + 2]) for n in range(count)]
        for name, _ in moves:
            self._mark(producer, begin(name))
        queues = [list(events) for _, events in moves]
        ends = [(name, _counts(events)) for name, events in moves]
        early = self._random.random() < 0.3
        if early:
            self._end(producer, ends)
        while any(queues):
            queue = self._random.choice([queue for queue in queues if queue])
            self._send(producer, queue.pop(0))
        if not early:
            self._end(producer, ends)

    def _end(self, producer: KafkaProducer, ends: list[tuple[str, dict[str, int]]]) -> None:
        for name, counts in ends:
            self._mark(producer, end(name, counts))

    def _move(self, source: int, target: int) -> tuple[str, list[Event]]:
        """A committed transaction and its events."""
        self.moves += 1
        name, amount = f"{self.moves}:{self.moves * 8}", self._random.randrange(100)
        changes: list[tuple[Collection, str, Line | None, Line | None]] = []
        for number, change in ((source, -amount), (target, amount)):
            old = self.accounts[number]
            new = {"id": number, "balance": old["balance"] + change, "last": self.moves}
            self.accounts[number] = new
            changes.append((self.account, "u", old, new))
        line = {"id": self.moves, "source": source, "target": target, "amount": amount}
        self.ledger[self.moves] = line
        changes.append((self.line, "c", None, line))
        changes += [(self.line, "d", old_line, None) for old_line in self._forgotten()]
        return name, [
            collection.event(op, before, after, member(name, order, order))
            for order, (collection, op, before, after) in enumerate(changes, start=1)
        ]

    def _forgotten(self) -> list[dict[str, int]]:
        """Lines that no account refers to any more and that are old."""
        used = {account["last"] for account in self.accounts.values()}
        old = [number for number in self.ledger if number <= self.moves - KEPT_LINES and number not in used]
        return [self.ledger.pop(number) for number in old]

    def _send(self, producer: KafkaProducer, event: Event) -> None:
        producer.send(event.collection.topic, key=event.key(), value=event.value())
        if event.op == "d":
            producer.send(event.collection.topic, key=event.key(), value=None)

    def _mark(self, producer: KafkaProducer, marker: tuple[bytes, bytes]) -> None:
        producer.send(self.transactions, key=marker[0], value=marker[1])

    def assert_whole(self, accounts: Rows, ledger: Rows, where: str) -> None:
        """Money is neither made nor lost, and the last move of each account is known with its other side."""
        total = sum(row["balance"] for row in accounts.values())
        assert total == ACCOUNTS * BALANCE, f"half a transaction: {total}, {where}"
        for row in accounts.values():
            if row["last"]:
                line = ledger.get(row["last"])
                assert line is not None, f"account {row['id']} without its line, {where}"
                assert row["id"] in (line["source"], line["target"]), where
                other = line["target"] if row["id"] == line["source"] else line["source"]
                assert accounts[other]["last"] >= row["last"], f"one side of move {row['last']}, {where}"

    def is_all_of(self, accounts: Rows, ledger: Rows) -> bool:
        """Whether a consumer has exactly what was committed."""
        return dict(accounts) == self.accounts and dict(ledger) == self.ledger


def _counts(events: list[Event]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for event in events:
        counts[event.collection.table] = counts.get(event.collection.table, 0) + 1
    return counts


class Working:
    """A bank at work in a thread of its own; it waits through the broker's restarts, as a connector does."""

    def __init__(self, bank: Bank, broker: KafkaBroker, seed: int, *, pause_s: float = 0.02) -> None:
        self._bank = bank
        self._broker = broker
        self._random = random.Random(seed)
        self._pause_s = pause_s
        self._closing = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Working:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Every record is acknowledged afterwards."""
        self._closing.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        patience = {"enable_idempotence": True, "delivery_timeout_ms": 600_000, "max_block_ms": 600_000}
        try:
            with self._broker.producer(**patience) as producer:
                while not self._closing.wait(self._random.expovariate(1 / self._pause_s)):
                    self._bank.wave(producer)
        except BaseException as error:
            self._failure = error
