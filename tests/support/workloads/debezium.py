"""Records as Debezium writes them: envelopes with or without embedded schema, and the topic of transactions.

Place in the flow: tests stand in for the connector and for nothing else; broker, adapter and consumers are real.
Contract: `Event.key()` and `.value()` are bytes as Kafka Connect's JSON converter gives them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
Field = Mapping[str, Any]
WRITTEN_MS = 1_700_000_000_000
TYPES = {int: "int64", str: "string", bool: "boolean", float: "double"}


def field(name: str, kind: type | str, *, optional: bool = True, semantic: str | None = None) -> Field:
    """A field of a Connect schema; `semantic` is its name, such as `io.debezium.time.Date`."""
    found = {"type": TYPES.get(kind, kind) if isinstance(kind, type) else kind, "optional": optional, "field": name}
    return {**found, "name": semantic, "version": 1} if semantic else found


@dataclass(frozen=True, slots=True)
class Collection:
    """A captured table: its topic, its fields and its key."""

    topic: str
    fields: Sequence[Field]
    key: Sequence[str] = ("id",)
    schemas: bool = True

    @property
    def table(self) -> str:
        return self.topic.rpartition(".")[2]

    def event(
        self,
        op: str,
        before: Row | None,
        after: Row | None,
        transaction: Row | None = None,
        source: Row | None = None,
    ) -> Event:
        """`source` is added to the block of that name."""
        return Event(self, op, before, after, transaction, source)

    def key_of(self, row: Row) -> bytes:
        payload = {name: row[name] for name in self.key}
        fields = [dict(field) for field in self.fields if field["field"] in self.key]
        schema = {"type": "struct", "optional": False, "name": f"{self.topic}.Key", "fields": fields}
        return _bytes({"schema": schema, "payload": payload} if self.schemas else payload)


@dataclass(frozen=True, slots=True)
class Event:
    """One change of one row."""

    collection: Collection
    op: str
    before: Row | None
    after: Row | None
    transaction: Row | None = None
    source: Row | None = None

    def key(self) -> bytes:
        row = self.after if self.after is not None else self.before
        assert row is not None
        return self.collection.key_of(row)

    def value(self) -> bytes:
        payload = {
            "before": self.before,
            "after": self.after,
            "source": {
                "connector": "postgresql",
                "name": "test",
                "schema": "public",
                "table": self.collection.table,
                **(self.source or {}),
            },
            "op": self.op,
            "ts_ms": WRITTEN_MS,
            "transaction": self.transaction,
        }
        if not self.collection.schemas:
            return _bytes(payload)
        row = {"type": "struct", "optional": True, "name": f"{self.collection.topic}.Value"}
        rows = [{**row, "fields": list(self.collection.fields), "field": side} for side in ("before", "after")]
        envelope = {"type": "struct", "optional": False, "name": f"{self.collection.topic}.Envelope"}
        fields = [*rows, {"type": "string", "optional": False, "field": "op"}]
        return _bytes({"schema": {**envelope, "fields": fields}, "payload": payload})


def member(transaction: str, total_order: int, collection_order: int) -> Row:
    """The `transaction` block of an event."""
    return {"id": transaction, "total_order": total_order, "data_collection_order": collection_order}


def begin(transaction: str) -> tuple[bytes, bytes]:
    """Key and value of a BEGIN in the topic of transactions."""
    return _marker(transaction, {"status": "BEGIN", "id": transaction, "event_count": None, "data_collections": None})


def end(transaction: str, counts: Mapping[str, int], time_ms: int = WRITTEN_MS) -> tuple[bytes, bytes]:
    """Key and value of an END, with the number of events of each collection."""
    collections = [{"data_collection": f"public.{name}", "event_count": count} for name, count in counts.items()]
    total = sum(counts.values())
    value = {"status": "END", "id": transaction, "event_count": total, "data_collections": collections}
    return _marker(transaction, value, time_ms)


def _marker(transaction: str, value: Row, time_ms: int = WRITTEN_MS) -> tuple[bytes, bytes]:
    return _bytes({"id": transaction}), _bytes({**value, "ts_ms": time_ms})


def _bytes(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
