"""The memory store under the suite: one table with every kind of column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from uuid import UUID

from adapters.memory import MemoryAdapter, MemoryStore
from changesource_sdk.adapter import Change, Column, Table
from changesource_sdk.testing.conformance import Harness

TYPES = {
    "title": str,
    "amount": int,
    "rate": float,
    "price": Decimal,
    "is_open": bool,
    "made": datetime,
    "due": date,
    "at": time,
    "reference": UUID,
    "extra": dict,
    "raw": bytes,
}


def a_store() -> MemoryStore:
    columns = [Column("id", int), *(Column(name, kind) for name, kind in TYPES.items())]
    return MemoryStore([Table("item", columns), Table("other", [Column("id", int)])])


class MemoryHarness(Harness):
    adapter = MemoryAdapter
    patience = 60.0
    lacks = ("durable", "acknowledge")
    supports = ("schema changes",)

    def create(self, folder: Path) -> None:
        self.store = a_store()

    def settings(self) -> Mapping[str, object]:
        return {"store": self.store}

    def commit(self, changes: Sequence[Change]) -> None:
        self.store.commit(changes)
