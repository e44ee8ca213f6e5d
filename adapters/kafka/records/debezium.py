"""Debezium's envelopes: what happened to a row, with the row before and after it. Pure.

`c` and `r` are complete new rows, `u` is a row after an update, `d` a deleted row, `t` a truncated table; the tombstone
after a delete adds nothing. For a value that Debezium did not get (an unchanged TOAST value in Postgres), the envelope
has a placeholder, and the column keeps its value. `boundary` reads the topic of transaction boundaries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from adapters.kafka.records.decoding import NOTHING, Decoded, Payload, Unreadable, Unwrapping
from adapters.kafka.records.upsert import Rows, whole_key
from changesource_sdk import Change, Delete, Insert, Truncate, Update

UNAVAILABLE = "__debezium_unavailable_value"
UNAVAILABLE_BYTES = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
_MARKS = (UNAVAILABLE.encode(), UNAVAILABLE_BYTES.encode())


class DebeziumFormat:
    """Records that are changes of rows."""

    def row_schema(self, schema: Mapping[str, object]) -> Mapping[str, object] | None:
        """The schema of the row in the schema of an envelope."""
        fields = schema.get("fields")
        after = [field for field in fields if field.get("field") == "after"] if isinstance(fields, list) else []
        return after[0] if after else None

    def image(self, payload: object) -> Payload | None:
        """The row after the change, else the one before it; None if there is neither."""
        images = (payload.get("after"), payload.get("before")) if isinstance(payload, dict) else ()
        return next((image for image in images if isinstance(image, dict)), None)

    def tombstone(self, rows: Rows, key: bytes | None) -> Decoded:
        """Nothing: a tombstone is only for compaction, and the delete came before it."""
        return NOTHING

    def record(self, rows: Rows, key: bytes | None, value: bytes, payload: object) -> Decoded:
        """Decode an envelope."""
        if payload is None:
            return NOTHING
        if not isinstance(payload, dict) or "op" not in payload:
            raise Unreadable("it is no Debezium envelope: it has no `op`; if its value is the row, use format=upsert")
        transaction, order = transaction_of(payload)
        try:
            changes = self._changes(rows, key, value, payload)
        except Unreadable as error:
            raise Unreadable(error.reason, transaction, order, is_mismatch=error.is_mismatch) from error
        block = payload.get("source")
        source = block if isinstance(block, dict) else None
        time_ms = payload.get("ts_ms") if source is None else source.get("ts_ms")
        return Decoded(changes, transaction, order, time_ms if isinstance(time_ms, int | float) else None, source)

    def _changes(self, rows: Rows, key: bytes | None, value: bytes, payload: Payload) -> tuple[Change, ...]:
        name = rows.table.table.full_name
        match payload["op"]:
            case "c" | "r":
                row = rows.row(_image(payload, "after"))
                rows.check_key(key, row)
                return (Insert(name, row),)
            case "u":
                update = self._update(rows, value, payload)
                rows.check_key(key, update.row)
                return (update,)
            case "d":
                gone = self._deleted_key(rows, key, payload)
                rows.check_key(key, gone)
                return (Delete(name, gone),)
            case "t":
                return (Truncate([name]),)
            case "m":
                return ()
        raise Unreadable(f"its op is {payload['op']!r}, which Debezium does not have")

    def _update(self, rows: Rows, value: bytes, payload: Payload) -> Update:
        after, before = _image(payload, "after"), payload.get("before")
        names = rows.table.table.key
        old = None
        if isinstance(before, dict) and any(before.get(name, after.get(name)) != after.get(name) for name in names):
            old = whole_key(rows, before)
        if any(mark in value for mark in _MARKS):
            after = {n: v for n, v in after.items() if v not in (UNAVAILABLE, UNAVAILABLE_BYTES)}
        return Update(rows.table.table.full_name, rows.row(after), old)

    def _deleted_key(self, rows: Rows, key: bytes | None, payload: Payload) -> Payload:
        before = payload.get("before")
        if isinstance(before, dict) and all(before.get(name) is not None for name in rows.table.table.key):
            return whole_key(rows, before)
        columns = rows.key(key)
        if columns is None:
            raise Unreadable("a delete without key and without the row before it")
        return whole_key(rows, columns)


def _image(payload: Payload, name: str) -> Payload:
    image = payload.get(name)
    if not isinstance(image, dict):
        raise Unreadable(f"its op is {payload['op']!r}, and `{name}` is no row")
    return image


def transaction_of(payload: Payload) -> tuple[str | None, int]:
    """The transaction of a record, and its number in it."""
    block = payload.get("transaction")
    if not isinstance(block, dict):
        return None, 0
    identifier, order = block.get("id"), block.get("total_order")
    if not isinstance(identifier, str) or not isinstance(order, int):
        raise Unreadable("its transaction has no id and total_order")
    return identifier, order


class Boundary(NamedTuple):
    """A record of the transaction topic: BEGIN, or END with the number of records by collection."""

    transaction: str
    is_end: bool
    counts: Mapping[str, int]
    time_ms: float | None = None


def boundary(unwrapping: Unwrapping, value: bytes | None) -> Boundary | None:
    """A record of the transaction topic; None if it says nothing. Raises `Unreadable`."""
    if value is None:
        return None
    match unwrapping.value(value).payload:
        case {"status": "BEGIN", "id": str(identifier)}:
            return Boundary(identifier, False, {})
        case {"status": "END", "id": str(identifier), "event_count": int(total), **rest}:
            time_ms = rest.get("ts_ms")
            counts = _counts(rest.get("data_collections") or [], total)
            return Boundary(identifier, True, counts, time_ms if isinstance(time_ms, int | float) else None)
    raise Unreadable("it is neither BEGIN nor END of a transaction")


def _counts(listed: object, total: int) -> dict[str, int]:
    try:
        counts = {str(each["data_collection"]): int(each["event_count"]) for each in listed}  # type: ignore[attr-defined]
    except (TypeError, KeyError, ValueError) as error:
        raise Unreadable(f"the counts of an END cannot be read: {error!r}") from error
    if sum(counts.values()) != total:
        raise Unreadable(f"an END counts {total} records, and {sum(counts.values())} by collection")
    return counts
