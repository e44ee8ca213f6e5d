"""Encodes an adapter's transactions: validated, framed, and spilled to disk when they are large.

The encoder carries the consumer's schema along the stream. A transaction either yields one `EncodedTransaction` or
raises and leaves the encoder as it was, with no file behind: the same transaction can be tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from changesource_sdk.adapter import Change, Delete, Insert, Transaction, Truncate, Update
from changesource_sdk.changelog.log import EncodedTransaction
from changesource_sdk.changelog.spool.blocks import BlockFile, BlockWriter
from changesource_sdk.contract import known_change
from changesource_sdk.errors import InvalidChange
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.encode import TableEncoder, truncate_frame
from changesource_sdk.pipeline.encoding.schema_frames import change_frames
from changesource_sdk.pipeline.encoding.validate import check, known_table, known_watermark
from changesource_sdk.positions import to_text
from changesource_sdk.schema import canonical_name

SPILL_BYTES = 8 * 1024 * 1024
"""Frames of one transaction that are held in memory before they go to a segment file."""


class TransactionEncoder:
    """Encodes a stream of transactions. Invariant: `schema` is the consumer's after the last one encoded."""

    def __init__(self, schema: ConsumerSchema, new_segment: Callable[[], Path], spill_bytes: int = SPILL_BYTES) -> None:
        # Replaced by each schema change, and put back if its transaction fails; written by `encode`.
        self.schema = schema
        self._new_segment = new_segment
        self._spill_bytes = spill_bytes
        # By table name as the adapter writes it and in canonical form; emptied by every schema change.
        self._encoders: dict[str, TableEncoder] = {}

    def encode(self, transaction: Transaction) -> EncodedTransaction:
        """One transaction, read to its end."""
        known_watermark(transaction.watermark, f"position {to_text(transaction.position)}")
        before = self.schema
        sink = _Sink(self._new_segment, self._spill_bytes)
        try:
            for change in transaction.changes:
                self._encode_change(change, sink)
            data = sink.finish()
        except BaseException as error:
            self.schema = before
            self._encoders.clear()
            sink.abandon()
            if isinstance(error, InvalidChange) and transaction.explain:
                raise transaction.explain(error) from error
            raise
        changed = self.schema is not before
        schema_after = self.schema.to_json() if changed else None
        time, watermark = transaction.commit_time_ms, transaction.watermark
        return EncodedTransaction(transaction.position, time, watermark, data, sink.count, schema_after)

    def _encode_change(self, change: Change, sink: _Sink) -> None:
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
            case _:
                known_change(change)
                check(self.schema, change)
                for frame in change_frames(self.schema, change):
                    sink.add(frame)
                self.schema = self.schema.apply(change)
                self._encoders.clear()

    def _encoder(self, table: str) -> TableEncoder:
        encoder = self._encoders.get(table)
        if encoder is None:
            name = canonical_name(table)
            encoder = self._encoders.get(name) or TableEncoder(known_table(self.schema, name))
            self._encoders[name] = self._encoders[table] = encoder
        return encoder


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
