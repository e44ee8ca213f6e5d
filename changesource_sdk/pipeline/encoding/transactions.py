"""Encodes an adapter's transactions: validated, framed, and spilled to disk when they are large.

The encoder carries the consumer's schema along the stream. A transaction either yields one `EncodedTransaction` or
raises and leaves the encoder as it was, with no file behind: the same transaction can be tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from changesource_sdk.adapter import (
    BadRow,
    Change,
    Delete,
    DropTable,
    Insert,
    RenameTable,
    SchemaChange,
    Transaction,
    Truncate,
    Update,
)
from changesource_sdk.changelog.dead_letters import Skip
from changesource_sdk.changelog.log import EncodedTransaction
from changesource_sdk.changelog.spool.blocks import BlockFile, BlockWriter
from changesource_sdk.contract import known_change
from changesource_sdk.errors import ChangesourceError, InvalidChange, RefusedRow
from changesource_sdk.pipeline.encoding.bad_values import BadValues
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.encode import TableEncoder, truncate_frame
from changesource_sdk.pipeline.encoding.logged_schema import LoggedSchema
from changesource_sdk.pipeline.encoding.schema_frames import change_frames
from changesource_sdk.pipeline.encoding.validate import check, known_table, known_watermark
from changesource_sdk.positions import to_text
from changesource_sdk.schema import Table, canonical_name

SPILL_BYTES = 8 * 1024 * 1024
"""Frames of one transaction that are held in memory before they go to a segment file."""
ROW_CHANGES = (Insert, Update, Delete)


class TransactionEncoder:
    """Encodes a stream of transactions. Invariant: `schema` is the consumer's after the last one encoded."""

    def __init__(
        self,
        schema: ConsumerSchema,
        new_segment: Callable[[], Path],
        spill_bytes: int = SPILL_BYTES,
        bad_values: BadValues | None = None,
        upstream: Callable[[], tuple[Table, ...] | None] = lambda: None,
        upstream_in_log: tuple[Table, ...] | None = None,
    ) -> None:
        # Replaced by each schema change, and put back if its transaction fails; written by `encode`.
        self.schema = schema
        self._new_segment = new_segment
        self._spill_bytes = spill_bytes
        self._bad_values = bad_values or BadValues()
        # Returns the adapter's own tables after the change that was read last, None if they are the consumers'.
        self._upstream = upstream
        # The adapter's own tables that the log has after the last transaction encoded; written by `encode`.
        self._upstream_in_log = upstream_in_log
        # By table name as the adapter writes it and in canonical form; emptied by every schema change.
        self._encoders: dict[str, TableEncoder] = {}

    def encode(self, transaction: Transaction) -> EncodedTransaction:
        """One transaction, read to its end."""
        position = to_text(transaction.position)
        known_watermark(transaction.watermark, f"position {position}")
        before = self.schema
        sink = _Sink(self._new_segment, self._spill_bytes)
        try:
            if skip := self._bad_values.begin(position):
                self._encode_skipped(transaction, skip, sink)
            else:
                for change in transaction.changes:
                    self._encode_change(change, transaction, sink)
            data = sink.finish()
        except BaseException as error:
            self.schema = before
            self._encoders.clear()
            self._bad_values.rollback()
            sink.abandon()
            if isinstance(error, InvalidChange) and transaction.explain:
                raise _marked(transaction.explain(error), error.refused, position) from error
            if isinstance(error, InvalidChange):
                _marked(error, error.refused, position)
            raise
        letters, skips = self._bad_values.commit()
        upstream = self._upstream()
        changed = self.schema is not before or upstream is not self._upstream_in_log
        self._upstream_in_log = upstream
        schema_after = LoggedSchema(self.schema, upstream).to_json() if changed else None
        time, watermark = transaction.commit_time_ms, transaction.watermark
        return EncodedTransaction(transaction.position, time, watermark, data, sink.count, schema_after, letters, skips)

    def _encode_change(self, change: Change, transaction: Transaction, sink: _Sink) -> None:
        """One change, or what is sent instead of it."""
        if isinstance(change, BadRow):
            self._encode_instead(change, change.error, transaction, sink)
            return
        if self._bad_values.is_watching and isinstance(change, ROW_CHANGES):
            admitted = self._bad_values.admitted(self._encoder(change.table), change)
            if admitted is None:
                return
            change = admitted
        try:
            self._encode_as_it_is(change, sink)
        except InvalidChange as error:
            if not isinstance(change, ROW_CHANGES):
                raise
            self._encode_instead(change, error, transaction, sink)

    def _encode_instead(
        self, change: Insert | Update | Delete | BadRow, error: ChangesourceError, transaction: Transaction, sink: _Sink
    ) -> None:
        explain = transaction.explain
        explained = explain(error) if explain is not None and isinstance(error, InvalidChange) else error
        for instead in self._bad_values.instead_of(self._encoder(change.table), change, error, explained):
            self._encode_as_it_is(instead, sink)

    def _encode_as_it_is(self, change: Change, sink: _Sink) -> None:
        match change:
            case Insert(table, row):
                sink.add(self._encoder(table).insert(row))
            case Update(table, row, old_key):
                sink.add(self._encoder(table).update(row, old_key))
            case Delete(table, key):
                sink.add(self._encoder(table).delete(key))
            case Truncate(tables):
                if tables:
                    sink.add(truncate_frame(map(self._encoder, tables)))
                for name in tables:
                    self._bad_values.emptied(canonical_name(name))
            case _ if not isinstance(change, BadRow):
                self._encode_schema_change(change, sink)

    def _encode_schema_change(self, change: SchemaChange, sink: _Sink) -> None:
        known_change(change)
        check(self.schema, change)
        for frame in change_frames(self.schema, change):
            sink.add(frame)
        self.schema = self.schema.apply(change)
        self._encoders.clear()
        match change:
            case DropTable(name):
                self._bad_values.emptied(canonical_name(name))
            case RenameTable(old, new):
                self._bad_values.renamed(canonical_name(old), canonical_name(new))

    def _encode_skipped(self, transaction: Transaction, skip: Skip, sink: _Sink) -> None:
        """A transaction that an operator skips: its rows are removed from consumers, so that none keeps an older
        version. Deletes, truncates and schema changes take effect where they can: later changes depend on them.
        """
        count = 0
        for change in transaction.changes:
            count += 1
            if isinstance(change, Insert | Update | BadRow):
                for removal in self._bad_values.skipped(self._encoder(change.table), change, skip):
                    self._encode_as_it_is(removal, sink)
                continue
            with suppress(InvalidChange):
                self._encode_change(change, transaction, sink)
        self._bad_values.carried_out(skip, count)

    def _encoder(self, table: str) -> TableEncoder:
        encoder = self._encoders.get(table)
        if encoder is None:
            name = canonical_name(table)
            encoder = self._encoders.get(name) or TableEncoder(known_table(self.schema, name))
            self._encoders[name] = self._encoders[table] = encoder
        return encoder


def _marked(error: ChangesourceError, refused: RefusedRow | None, position: str) -> ChangesourceError:
    """The error, saying which row or at least which transaction it is about."""
    error.refused = refused or error.refused or RefusedRow(position)
    return error


class _Sink:
    """Frames of one transaction: in memory up to a limit, beyond it in a segment file."""

    def __init__(self, new_segment: Callable[[], Path], spill_bytes: int) -> None:
        # Frames added so far.
        self.count = 0
        self._new_segment = new_segment
        self._spill_bytes = spill_bytes
        # Frames in memory; empty once they are spilled.
        self._frames: list[bytes] = []
        # Bytes of frames added before the spill.
        self._size = 0
        # Made by `_spill`; all later frames go there.
        self._writer: BlockWriter | None = None

    def add(self, frame: bytes) -> None:
        self.count += 1
        if self._writer is not None:
            self._writer.write(frame)
            return
        self._frames.append(frame)
        self._size += len(frame)
        if self._size > self._spill_bytes:
            self._spill()

    def _spill(self) -> None:
        self._writer = BlockWriter(self._new_segment())
        for frame in self._frames:
            self._writer.write(frame)
        self._frames.clear()

    def finish(self) -> bytes | BlockFile:
        return self._writer.finish() if self._writer is not None else b"".join(self._frames)

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.abandon()
