"""The error or warning for keys without a certainly newest record."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from adapters.kafka.key_order import Candidate, newest
from adapters.kafka.records.dead_letters import record_name
from changesource_sdk import AdapterError
from changesource_sdk.toolkit import event, logger

_log = logger("kafka")


def key_unordered(
    topic: str, table: str, order_by: str, key: bytes, candidates: Iterable[Candidate], more: int = 0
) -> AdapterError:
    """The error for a key without a certainly newest record; `more` is the number of other such keys."""
    sorted_candidates = sorted(candidates, key=lambda candidate: candidate.partition)
    records = ", ".join(record_name((topic, candidate.partition, candidate.offset)) for candidate in sorted_candidates)
    return AdapterError(
        "key-unordered",
        f"key {key.decode()} of table {table} has records in several partitions, and nothing says which is the "
        f"newest: {records}; {_why(order_by, sorted_candidates)}{f'; {more} more keys are like it' if more else ''}",
        where=f"topic {topic}",
        fix="say what orders them: --set order_by=timestamp, source (Debezium) or column:NAME, or order_by in "
        "[set.tables.NAME]; or continue without such rows: --set unordered_keys=set-aside; "
        "or write the topic again with each key in one partition",
    )


def _why(order_by: str, candidates: Sequence[Candidate]) -> str:
    if not order_by:
        return "no order is configured"
    best = newest(candidates)
    if best is not None:
        return "the newest leaves out unchanged values, which only another partition has"
    blank = next((each for each in candidates if each.is_bound), None)
    if blank is not None:
        return f"the one in partition {blank.partition} has no order by {order_by}"
    return f"they have the same order by {order_by}, or orders that cannot be compared"


def warn_left_out(error: AdapterError) -> None:
    """Log that a row is left out."""
    event(_log, logging.WARNING, "a row is left out: key-unordered", reason=error.message, fix=error.fix)
