"""An application that never rests: numbered lines in a ledger, one or more a transaction, and a balance they add up to.

Lines are only ever added and are numbered without gaps, so a stream shows by itself whether anything was lost, doubled
or put out of order; the balance changes in the same transaction, so a torn transaction shows, too.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable
from typing import Any

from tests.support.workloads.sqlite_store import SqliteStore

TABLES = (
    "CREATE TABLE ledger (id INTEGER PRIMARY KEY, amount INTEGER NOT NULL)",
    "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)",
    "INSERT INTO account VALUES (1, 0)",
)


class Ledger:
    """Writes in a thread of its own from entering the context to `close`. Invariant: ids are 1 to `lines`."""

    def __init__(self, store: SqliteStore, seed: int, *, per_second: float = 40) -> None:
        store.run(*TABLES)
        self._store = store
        self._random = random.Random(seed)
        self._per_second = per_second
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="ledger")
        self.lines = 0

    def __enter__(self) -> Ledger:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop writing; all that was written is committed."""
        self._closing.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._closing.wait(self._random.expovariate(self._per_second)):
            self.write(self._random.choice((1, 1, 1, 1, 2, 5, 50)))

    def write(self, count: int) -> None:
        """One transaction of this many lines."""
        statements = []
        for number in range(self.lines + 1, self.lines + count + 1):
            amount = self._random.randrange(100)
            statements.append(f"INSERT INTO ledger VALUES ({number}, {amount})")
            statements.append(f"UPDATE account SET balance = balance + {amount} WHERE id = 1")
        self._store.run(*statements)
        self.lines += count


class Audit:
    """Reads a stream message by message and stops at the first thing that is not exactly once, whole and in order."""

    def __init__(self) -> None:
        self.lines = 0
        self.sum = 0
        self.balance = 0
        self.watermark = ""

    def read(self, messages: Iterable[list[Any]]) -> None:
        """Take in messages of a stream that began with the snapshot."""
        for message in messages:
            match message[0]:
                case "data":
                    self._change(message[1])
                case "commit":
                    self._commit(message[2]["watermark"])

    def _change(self, change: dict[str, Any]) -> None:
        table = change.get("relation", {}).get("name")
        if table == "ledger":
            assert change["tag"] == "insert", f"a line of the ledger was sent as {change['tag']}"
            assert change["new"]["id"] == self.lines + 1, f"line {change['new']['id']} follows line {self.lines}"
            self.lines += 1
            self.sum += change["new"]["amount"]
        elif table == "account":
            self.balance = change["new"]["balance"]

    def _commit(self, watermark: str) -> None:
        assert watermark > self.watermark, f"{watermark} follows {self.watermark}"
        assert self.sum == self.balance, f"half a transaction at {watermark}"
        self.watermark = watermark
