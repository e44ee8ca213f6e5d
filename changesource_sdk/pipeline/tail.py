"""The reading half of a runner: an adapter's transactions, in a thread of their own, ready to append.

It starts after the log's head with the schema consumers have there, gives the adapter its tables of that position
(`UsingTables`), skips what the log has already, validates and
encodes the rest, and feeds it in order. An error ends it and reaches the writer after everything fed before.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from time import monotonic

from changesource_sdk.adapter import Adapter, Closing, Transaction, UsingTables
from changesource_sdk.changelog.log import LogState, segment_prefix
from changesource_sdk.changelog.reading import knows
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.contract import checked_transactions
from changesource_sdk.pipeline.encoding.bad_values import BadValueRules, BadValues
from changesource_sdk.pipeline.encoding.logged_schema import LoggedSchema
from changesource_sdk.pipeline.encoding.transactions import TransactionEncoder
from changesource_sdk.pipeline.feed import FeedClosed, TransactionFeed
from changesource_sdk.pipeline.mapping.source import MappedSource, skip_changes
from changesource_sdk.pipeline.patience import Patience
from changesource_sdk.pipeline.snapshot.take import adapter_call, close_quietly
from changesource_sdk.positions import is_ahead, is_behind
from service_kit.logs import event, logger

_log = logger("runner")

POLL_INTERVAL_S = 0.05
JOIN_S = 5.0


class Tail:
    """Reads one adapter in a thread. Invariant: what it feeds continues the log without gaps or duplicates."""

    def __init__(
        self,
        adapter: Adapter,
        state: LogState,
        log_store: LogStore,
        spill_bytes: int,
        rules: BadValueRules | None = None,
        source: str = "",
        position_key: str = "",
    ) -> None:
        """`position_key` qualifies the positions of `source` in a log that several share (`SourceRow`)."""
        self.feed = TransactionFeed()
        self._adapter = adapter
        # Position of the last transaction fed; written by the thread.
        self._position = state.position
        self._directory = log_store.layout.segments
        self._known = log_store.open_log()
        # Number of segments made; names them together with the epoch. Written by the thread.
        self._segments = 0
        self._epoch = state.epoch
        self._source = source
        self._position_key = position_key
        bad_values = BadValues(rules, [each for each in self._known.kept_aside().letters if each.source == source])
        schema = LoggedSchema.from_json(state.schema)
        # The source if it has mappings: then it gives the adapter its tables, and knows them along the stream.
        self._mapped = adapter if isinstance(adapter, MappedSource) else None
        if self._mapped is None:
            self._encoder = TransactionEncoder(schema.consumer, self._new_segment, spill_bytes, bad_values)
        else:
            self._mapped.start_from(schema)
            upstream = self._mapped.upstream_tables
            self._encoder = TransactionEncoder(
                schema.consumer, self._new_segment, spill_bytes, bad_values, upstream, schema.upstream
            )
        # Set by `end`; the thread returns before the next transaction.
        self._ended = threading.Event()
        self.patience = Patience(f"{source}: changes()" if source else "changes()")
        self._thread = threading.Thread(target=self._run, name="changesource-tail", daemon=True)
        # Since when, in monotonic seconds, the source has answered without an error; None before it does. Written by
        # the thread, read by the writer.
        self.healthy_since: float | None = None

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """End the thread; one that is stuck in the upstream is left behind and can no longer feed."""
        self._ended.set()
        self.feed.close()
        if isinstance(self._adapter, Closing):
            close_quietly("closing the adapter", self._adapter.close)
        if self._thread.ident is not None:
            self._thread.join(JOIN_S)
        if self._thread.is_alive():
            event(_log, logging.WARNING, "the adapter is still reading; give it a close() that ends changes()")
        self.patience.end_wait()
        self._known.close()

    def _run(self) -> None:
        try:
            with adapter_call("changes()"):
                while not self._ended.is_set():
                    moved = self._read_available()
                    # A source in front of the upstream (the micro-batch lane) may return before the upstream was asked.
                    if self.healthy_since is None and getattr(self._adapter, "has_answered", True):
                        self.healthy_since = monotonic()
                    if not moved:
                        self._ended.wait(getattr(self._adapter, "poll_interval", POLL_INTERVAL_S))
        except FeedClosed:
            return
        except BaseException as error:
            self.feed.fail(error)

    def _read_available(self) -> bool:
        """Feed what the adapter gives now; whether anything was new, so that more may be waiting already."""
        before = self._position
        if self._mapped is None and isinstance(self._adapter, UsingTables):
            self._adapter.use_tables(self._encoder.schema.declared())
        for transaction in self.patience.answers(lambda: checked_transactions(self._adapter.changes(before))):
            if self._ended.is_set():
                break
            if self._is_replay(transaction):
                # Read it anyway: an adapter may produce the changes from the same stream as the transactions.
                skip_changes(transaction.changes)
                continue
            self.feed.put(self._encoder.encode(transaction))
            self._position = transaction.position
        return self._position != before

    def _is_replay(self, transaction: Transaction) -> bool:
        position = transaction.position
        if is_ahead(position, self._position):
            return False
        return (
            is_behind(position, self._position)
            or position == self._position
            or self.feed.is_pending(position)
            or knows(self._known, position, self._position_key)
        )

    def _new_segment(self) -> Path:
        self._segments += 1
        return self._directory / f"{segment_prefix(self._source)}{self._epoch}-{self._segments}.frames"
