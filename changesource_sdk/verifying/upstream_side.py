"""The rows of the upstream: a new snapshot through its adapter, encoded as in the pipeline, to compare with the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from changesource_sdk.adapter import Adapter
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.contract import checked_snapshot
from changesource_sdk.pipeline.encoding.bad_values import BadValueRules
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.snapshot.fold import fold_snapshot
from changesource_sdk.pipeline.snapshot.take import adapter_call
from changesource_sdk.policies.bad_values import policy_of
from changesource_sdk.verifying.log_side import log_side, side_tables
from changesource_sdk.verifying.sides import Side, TableVerdict, compare

ATTEMPTS = 5


def upstream_side(adapter: Adapter, schema: ConsumerSchema, on_bad_value: str = "") -> Side:
    """The rows of the upstream now; its position takes the role of the watermark.

    Rows that no consumer can hold are left out and counted, or have null where the log has it for that reason.
    """
    rules = BadValueRules("null" if policy_of(on_bad_value, adapter) == "null" else "dead-letter")
    with adapter_call("snapshot()"):
        read = fold_snapshot(adapter, checked_snapshot(adapter.snapshot()), rules)
    return Side("upstream", str(read.position), side_tables(read.replica, schema), read.left_out)


def compare_with_log(
    adapter: Adapter,
    store: LogStore,
    schema: ConsumerSchema,
    pause: Callable[[], None],
    attempts: int = ATTEMPTS,
    on_bad_value: str = "",
) -> tuple[Side, Side, list[TableVerdict]]:
    """The upstream compared with the log's head. Of the log only the tables in `schema`: those that the adapter reads.

    The upstream changes while both are read, and the log follows a moment later. So both are read up to `attempts`
    times, with `pause` in between; only a row that differs every time, in the same way, is reported.
    """
    lasting: set[str] | None = None
    for attempt in range(attempts):
        if attempt:
            pause()
        upstream, log = upstream_side(adapter, schema, on_bad_value), log_side(store, schema)
        log = replace(log, tables={name: rows for name, rows in log.tables.items() if name in schema.tables})
        verdicts = compare(upstream, log)
        seen = {repr(difference) for verdict in verdicts for difference in verdict.differences}
        lasting = seen if lasting is None else lasting & seen
        if not lasting:
            break
    return upstream, log, [_lasting(verdict, lasting or set()) for verdict in verdicts]


def _lasting(verdict: TableVerdict, lasting: set[str]) -> TableVerdict:
    """The verdict without differences that did not last; a table without others is the same."""
    kept = tuple(each for each in verdict.differences if repr(each) in lasting)
    if kept or not verdict.differences:
        return replace(verdict, differences=kept)
    return replace(verdict, found_rows=verdict.expected_rows, found_digest=verdict.expected_digest, differences=())
