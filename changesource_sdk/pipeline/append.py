"""The writing half of a runner: everything that waits becomes one durable commit, acknowledged upstream after it.

Every runner uses it, in its own process or in a Spark task.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import TypeAlias

from changesource_sdk.adapter import Acknowledging, Adapter
from changesource_sdk.changelog.source_writer import SourceWriter
from changesource_sdk.changelog.writer import LogWriter
from changesource_sdk.pipeline.encoding.bad_values import BadValueRules
from changesource_sdk.pipeline.run import Run
from changesource_sdk.pipeline.snapshot.take import adapter_call
from changesource_sdk.pipeline.tail import Tail
from changesource_sdk.pipeline.upkeep import LogUpkeep
from changesource_sdk.pipeline.upstream_head import HeadWatch
from changesource_sdk.positions import from_text, to_text
from service_kit.logs import event, logger

_log = logger("runner")

POLL_S = 0.25
"""How often requests and offers for the writer are polled, in seconds, and the longest wait for a transaction."""
SETTLED_S = 5.0
"""Seconds without an error after which an upstream that sends nothing has recovered. An upstream that fails again at
once, after each retry, is not reported as recovered in between.
"""


Appender: TypeAlias = LogWriter | SourceWriter
"""The writer of the whole log, or of one source where several share it."""


def append_tail(run: Run, adapter: Adapter, writer: Appender, progressed: Callable[[], None] = lambda: None) -> None:
    """Append what follows the writer's last position until the run stops or a snapshot is requested.

    `progressed` is called after each commit. Raises what ended the reading.
    """
    rules = _current_rules(run, adapter, writer)
    tail = Tail(adapter, writer.state(), run.log_store, run.spill_bytes, rules, run.source, writer.position_key)
    # Where sources share the log, its owner answers requests and prunes.
    upkeep = LogUpkeep(run.log_store, writer) if isinstance(writer, LogWriter) else None
    stage = run.stage
    stage.update(state="tailing", watermark=writer.state().head, position=writer.state().position)
    head = HeadWatch(adapter, clock=run.clock)
    try:
        tail.start()
        poll_at = 0.0
        while not run.stop.is_set():
            if monotonic() >= poll_at:
                if upkeep is not None:
                    if run.log_store.requests.pending_snapshot() is not None:
                        return
                    upkeep.step()
                stage.update(upstream=head.report(writer.state().position))
                poll_at = monotonic() + POLL_S
            if _append_waiting(adapter, writer, run, tail):
                progressed()
            elif tail.healthy_since is not None and monotonic() - tail.healthy_since >= SETTLED_S:
                stage.recovered()
            tail.patience.warn_if_overdue()
            stage.beat()
    finally:
        head.close()
        tail.end()


def _current_rules(run: Run, adapter: Adapter, writer: Appender) -> BadValueRules:
    """The rules for what follows; requests about transactions that are in the log already are withdrawn."""
    rules = run.bad_value_rules(adapter)
    over = [skip for skip in rules.skips if not skip.position or writer.knows(from_text(skip.position))]
    if over:
        run.log_store.requests.withdraw_skips(over)
    pending = [skip for skip in rules.skips if skip not in over]
    after = to_text(writer.state().position)
    rows = [skip.in_any_transaction() for skip in pending if skip.table and skip.after == after]
    return replace(rules, skips=(*pending, *rows))


def _append_waiting(adapter: Adapter, writer: Appender, run: Run, tail: Tail) -> bool:
    """Commit everything that waits, then acknowledge it upstream. Waits up to `POLL_S`; whether there was anything."""
    batch = tail.feed.take(POLL_S)
    if not batch:
        return False
    marks = writer.append(batch)
    tail.feed.done(batch)
    if skipped := [skip for transaction in batch for skip in transaction.skips]:
        for skip in skipped:
            event(_log, logging.WARNING, "skipped", position=skip.position, row=skip.row or None, reason=skip.reason)
        run.log_store.requests.withdraw_skips(skipped)
    stage = run.stage
    stage.recovered()
    last = batch[-1].position
    changes = sum(transaction.changes for transaction in batch)
    stage.update(position=last, watermark=marks[-1], transactions=len(batch), changes=changes)
    if isinstance(adapter, Acknowledging):
        with adapter_call("acknowledge()"):
            adapter.acknowledge(last)
    return True
