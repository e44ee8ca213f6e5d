"""Which record of a key is the newest when the key is in several partitions. Pure.

Offsets order only the records of one partition, which is enough for a key in one partition. For a key in several, the
last record in each partition is compared (a `Candidate`): broker compaction keeps exactly those, so it cannot change
the result. `newest` picks the candidate that is certainly newer than all the others by the setting `order_by`, or none:

| `order_by` | what is compared |
|---|---|
| `timestamp` | the record's timestamp |
| `source` | Debezium's position in the source: LSN, binlog file and position, SCN, or oplog order |
| `column:NAME` | a number or time in a column of the row |
| empty | nothing: a key in two partitions has no newest record |
| `offset` | nothing, and no check whether a key is in two partitions |

A record without such a value, as a tombstone has no columns, is only known to come after the record before it in its
partition: its order is a lower bound (`is_bound`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import NamedTuple, TypeAlias

from kafka.consumer.fetcher import ConsumerRecord

from changesource_sdk import BadRow, Change, Delete, Insert, Row, Update
from changesource_sdk.toolkit import kept_json, to_epoch_ms
from protocol.data_types import INT64_MAX, INT64_MIN

Order: TypeAlias = "tuple[str | int | float, ...]"
"""A kind, then the values to compare; orders of different kinds cannot be compared."""

COLUMN = "column:"
OFFSET = "offset"
WORDS = ("timestamp", "source", OFFSET)
_BINLOG = re.compile(r"(.*)\.(\d+)\Z")


class Candidate(NamedTuple):
    """The last record of a key in one partition.

    `is_whole`: the records of this partition alone have all columns of the row, or its delete.
    """

    partition: int
    offset: int
    order: Order | None = None
    is_bound: bool = True
    is_whole: bool = True

    def after(self, earlier: Candidate | None) -> Candidate:
        """The candidate, completed by the record before it in the same partition."""
        if earlier is None:
            return self
        whole = self.is_whole or earlier.is_whole
        order, is_bound = (self.order, self.is_bound) if self.order is not None else (earlier.order, True)
        return Candidate(self.partition, self.offset, order, is_bound, whole)


def newest(candidates: Iterable[Candidate]) -> Candidate | None:
    """The candidate that is certainly newer than every other; None if none is."""
    all_candidates = list(candidates)
    return next(
        (one for one in all_candidates if all(other is one or is_newer(one, other) for other in all_candidates)), None
    )


def is_newer(one: Candidate, other: Candidate) -> bool:
    """Whether one candidate is certainly newer than another."""
    if one.order is None or other.order is None or other.is_bound or one.order[0] != other.order[0]:
        return False
    return one.order > other.order or (one.is_bound and one.order == other.order)


def order_of(
    order_by: str, record: ConsumerRecord, source: Mapping[str, object] | None, change: Change
) -> Order | None:
    """The order of a record by a setting; None if it has none. `source` is Debezium's block of that name."""
    if order_by == "timestamp":
        return ("timestamp", record.timestamp) if record.timestamp >= 0 else None
    if order_by == "source":
        return source_order(source) if source is not None else None
    if order_by.startswith(COLUMN) and isinstance(change, Insert | Update):
        return _value_order(change.row.get(order_by.removeprefix(COLUMN)))
    return None


def source_order(source: Mapping[str, object]) -> Order | None:
    """The position of a change in its database, by the fields of Debezium's connectors."""
    match source:
        case {"lsn": int(lsn)}:
            return ("lsn", lsn)
        case {"file": str(file), "pos": int(position)} if name := _BINLOG.match(file):
            return (f"binlog {name[1]}", int(name[2]), position, _number(source.get("row")))
        case {"commit_lsn": str(commit)}:
            return ("commit_lsn", commit, str(source.get("change_lsn") or ""), _number(source.get("event_serial_no")))
        case {"scn": str(scn)} if scn.isdecimal():
            commit = str(source.get("commit_scn") or scn)
            return ("scn", int(commit) if commit.isdecimal() else int(scn), int(scn))
        case {"ord": int(order), "ts_ms": int(time_ms)}:
            return ("oplog", time_ms, order)
    return None


def is_whole(change: Change, columns: int) -> bool:
    """Whether nothing but the change is needed to know the row: it has all columns, is a delete, or cannot be read."""
    return isinstance(change, Insert | Delete | BadRow) or (isinstance(change, Update) and len(change.row) == columns)


def key_bytes(row: Row, names: Sequence[str]) -> bytes:
    """The key of a row, as it is compared."""
    values = [row[name] for name in names]
    try:
        return kept_json(values)
    except TypeError:  # an integer beyond 64 bits, which is refused when the row is validated
        return json.dumps(values, default=str).encode()


def keys_of(change: Change) -> list[Row]:
    """The rows or keys that a change is about; the one that it leaves behind comes first."""
    match change:
        case Insert(_, row) | Delete(_, row) | BadRow(_, row):
            return [row]
        case Update(_, row, old_key):
            return [row] if old_key is None else [old_key, row]
    return []


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _value_order(value: object) -> Order | None:
    """Numbers and times have one order; texts do not (`10` and `9`)."""
    match value:
        case bool():
            return None
        case datetime() | date():
            return ("value", to_epoch_ms(value))
        case int() if INT64_MIN <= value <= INT64_MAX:
            return ("value", value)
        case float() | Decimal() if math.isfinite(value):
            return ("value", value if isinstance(value, float) else float(value))
    return None
