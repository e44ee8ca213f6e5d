"""The micro-batch lane: Structured Streaming for sources whose mappings use Spark SQL.

A streaming query reads the transactions (`change_source`), Spark evaluates the expressions on the rows before
and after each change, and `foreachBatch` hands transactions, in their order, to the same tail that the other lanes run.
A batch ends when the log holds every transaction that ends in it.

Exactly once does not rest on Spark. The usual recipe, remembering the last pair of query and batch number, holds only
as long as checkpoint and log survive together and a batch number always means the same rows. Here the log
skips a source position that it has already, in the transaction that appends: whatever Spark, a killed driver or a lost
checkpoint repeats, in whatever batches, is stored once. Every query begins after the log's last position with a
checkpoint of its own, so Spark's bookkeeping never decides where to continue.

Latency is a batch's: some hundred milliseconds where a resident task needs a few. The lane is chosen only for sources
that need it. A transaction that is too large for a batch passes piece by piece, and no more than a few pieces are in
memory at a time; the tail spills it to disk as it does in the other lanes.
"""

from __future__ import annotations

import logging
import os
import pickle
import queue
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from changesource_sdk.adapter import Change, Position, Snapshot, Table, Transaction
from changesource_sdk.changelog.reading import knows
from changesource_sdk.errors import ChangesourceError
from changesource_sdk.pipeline.adapter_factory import opened
from changesource_sdk.pipeline.encoding.logged_schema import LoggedSchema
from changesource_sdk.pipeline.mapped import MappedAdapter
from changesource_sdk.pipeline.mapping.change import ChangeMapper
from changesource_sdk.pipeline.mapping.declare import needs_spark
from changesource_sdk.pipeline.mapping.source import MappedChanges
from changesource_sdk.pipeline.spark.lanes.driver_tail import DriverTail
from changesource_sdk.pipeline.spark.sql.batches import Batches, Piece, stream_failure
from changesource_sdk.pipeline.spark.sql.change_source import (
    FORMAT,
    ChangesDataSource,
    ReaderSpec,
    TransactionHead,
    stream_schema,
)
from changesource_sdk.pipeline.spark.sql.mapping import gist
from changesource_sdk.positions import to_text
from service_kit.logs import event, logger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logger("spark")
_POLL_S = 0.25
_END_BATCH_S = 5.0
_KEPT_LATENCIES = 100
LANE = "micro-batch"

#: Measured together: they halve the time of a batch. The checkpoint manager spares a forked process per file.
_SETTINGS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.pollingDelay": "1ms",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def follow(tail: DriverTail) -> None:
    """Follow a mapped source until the run stops or a snapshot is due; raises what ended it otherwise."""
    with opened(tail.source.factory()) as made:
        assert isinstance(made, MappedAdapter)
        reason = f"{needs_spark(made.mappings)} is Spark SQL"
        event(_log, logging.INFO, "the micro-batch lane follows the source", reason=reason)
        tail.append(lambda key: MicroBatchSource(tail, made, key), LANE)


class MicroBatchSource:
    """A source whose transactions come out of a streaming query, already evaluated; to the tail it is an adapter.

    Invariants: as long as it is not closed, a batch of the query ends only after the tail acknowledged the last
    transaction that ends in it; upstream is acknowledged only what the tail acknowledged.
    """

    poll_interval = 0.0

    def __init__(self, tail: DriverTail, mapped: MappedAdapter, position_key: str = "") -> None:
        self._session = tuned(tail.session)
        self._position_key = position_key
        self._tail = tail
        self._mapped = mapped
        self._known = tail.run.log_store.open_log()
        # Set by `_start`; used in the tail's thread.
        self._mapper: ChangeMapper | None = None
        # From the query's thread to the tail's: the pieces of a batch, or what failed.
        self._waiting: queue.Queue[list[Piece] | ChangesourceError] = queue.Queue(maxsize=1)
        # Pieces taken from `_waiting` and not yet yielded; used in the tail's thread.
        self._pieces: deque[Piece] = deque()
        self._changed = threading.Condition()  # guards the next three
        # Text of the last position that the log holds; written by `acknowledge`, in the writer's thread.
        self._acknowledged = ""
        # Set by `close`, from any thread.
        self._closed = False
        # Whether the query's thread is inside `_on_batch`.
        self._in_batch = False
        self._heads: list[TransactionHead] = []  # of transactions whose end is still to come; the query's thread
        # Milliseconds from reading a transaction to its commit, the newest; the query's thread.
        self._latencies: deque[float] = deque(maxlen=_KEPT_LATENCIES)
        # Started by the first call of `changes`.
        self._query: StreamingQuery | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="changesource-stream-", dir=_memory_folder())
        self._durable = Path(self._folder.name) / "durable"
        self._described: ReaderSpec | None = None  # the reader's settings, once the query is started

    @property
    def has_answered(self) -> bool:
        """Whether the upstream has answered the query's reader, which takes seconds to start. Only then is it well."""
        return self._described is not None and self._described.answered.exists()

    def __getattr__(self, name: str) -> object:
        """How far the upstream is and what is done with bad values, if the adapter says it."""
        if name in ("head", "distance", "on_bad_value"):
            return getattr(self._mapped, name)
        raise AttributeError(name)

    def tables(self) -> Sequence[Table]:
        """The tables as consumers get them."""
        return self._mapped.tables()

    def snapshot(self) -> Snapshot:
        """Return the upstream's snapshot, with mapped partitions."""
        return self._mapped.snapshot()

    def start_from(self, schema: LoggedSchema) -> None:
        """Continue with the schema of the log's head."""
        self._mapped.start_from(schema)

    def upstream_tables(self) -> tuple[Table, ...] | None:
        """The adapter's tables after the change that was read last."""
        return None if self._mapper is None else self._mapper.followed.tables

    def changes(self, after: Position) -> Iterator[Transaction]:
        """Yield what the query produces, and return when it produces nothing for a moment; the query keeps running."""
        if self._query is None:
            self._start(after)
        while (piece := self._next_piece()) is not None:
            head = piece.head
            assert head is not None
            assert self._mapper is not None
            changes = MappedChanges(self._changes_from(piece), self._mapper)
            yield Transaction(head.position, changes, head.commit_time_ms, head.watermark)

    def _changes_from(self, piece: Piece) -> Iterator[Change]:
        """The upstream's changes of a transaction, from its first piece on."""
        yield from piece.changes
        while not piece.is_last:
            following = self._next_piece()
            if following is not None:
                piece = following
                yield from piece.changes
            elif self._closed:
                raise stream_failure("the pipeline stopped in the middle of a transaction")

    def _next_piece(self) -> Piece | None:
        """The next piece; None if none comes within a moment. Raises what ended the query."""
        while not self._pieces and not self._closed:
            try:
                batch = self._waiting.get(timeout=_POLL_S)
            except queue.Empty:
                self._check_query()
                return None
            if isinstance(batch, ChangesourceError):
                raise batch
            self._pieces.extend(batch)
        return self._pieces.popleft() if self._pieces and not self._closed else None

    def acknowledge(self, position: Position) -> None:
        """The log holds everything up to here: the batch that waits for it may end."""
        with self._changed:
            self._acknowledged = to_text(position)
            self._changed.notify_all()
        staged = self._durable.with_suffix(".staged")
        staged.write_text(to_text(position))
        staged.replace(self._durable)

    def close(self) -> None:
        """Stop the query; a batch in flight is given up, and read again by the next query if the log lacks it."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
            # Stopping a query in the middle of a batch would fill Spark's log with traces.
            self._changed.wait_for(lambda: not self._in_batch, _END_BATCH_S)
        if self._query is not None:
            self._query.stop()
        self._known.close()
        self._folder.cleanup()

    def _start(self, after: Position) -> None:
        self._mapper = self._mapped.change_mapper()
        tables = self._mapper.tables_with_sql()
        batches = Batches(self._session, tables)
        described = Path(self._folder.name) / "source"
        tail = self._tail
        source = ReaderSpec(tail.source, after, tables, self._durable, tail.logs, self._mapper.followed.tables)
        described.write_bytes(pickle.dumps(source))
        self._described = source
        stream = self._session.readStream.format(FORMAT).schema(stream_schema(tables))
        writer = stream.option("source", str(described)).load().writeStream
        writer = writer.foreachBatch(lambda frame, number: self._on_batch(batches, frame))
        writer = writer.option("checkpointLocation", f"file://{self._folder.name}/checkpoint")
        self._query = writer.trigger(processingTime="0 seconds").start()

    def _on_batch(self, batches: Batches, frame: DataFrame) -> None:
        """One batch, to its end or until the source is closed."""
        with self._changed:
            if self._closed:
                return
            self._in_batch = True
        try:
            self._process(batches, frame)
        finally:
            with self._changed:
                self._in_batch = False
                self._changed.notify_all()

    def _process(self, batches: Batches, frame: DataFrame) -> None:
        """Evaluate a batch, hand it over, wait until what ends in it is durable. Errors are raised by the tail."""
        try:
            pieces = batches.evaluated(frame)
        except ChangesourceError as error:
            self._hand_over(error)
            return
        if not pieces or not self._hand_over(pieces):
            return
        self._heads += [piece.head for piece in pieces if piece.head is not None]
        ended = sum(piece.is_last for piece in pieces)
        if ended:
            first, last = self._heads[0], self._heads[ended - 1]
            del self._heads[:ended]
            if self._until_durable(last.position):
                self._note_latency(first.read_at)

    def _hand_over(self, item: list[Piece] | ChangesourceError) -> bool:
        """Give the tail something, when it has taken what was before; False if it will not take any more."""
        while not self._closed:
            try:
                self._waiting.put(item, timeout=_POLL_S)
                return True
            except queue.Full:
                continue
        return False

    def _until_durable(self, position: Position) -> bool:
        """Wait for the acknowledgement of a position; False if the source was closed before."""
        wanted = to_text(position)
        with self._changed:
            while not self._closed and self._acknowledged != wanted:
                # A transaction that the log had already is passed over and never acknowledged.
                if not self._changed.wait(_POLL_S) and knows(self._known, position, self._position_key):
                    break
            return not self._closed

    def _note_latency(self, read_at: float) -> None:
        self._latencies.append((time.time() - read_at) * 1000)
        self._tail.run.stage.update(latency_ms=round(median(self._latencies), 1))

    def _check_query(self) -> None:
        """Raise what ended the query, if something did."""
        query = self._query
        if query is None or query.isActive or self._closed:
            return
        error = query.exception()
        raise stream_failure(gist(str(error)) if error is not None else "the streaming query ended")


def tuned(session: SparkSession) -> SparkSession:
    """A session of its own, so that the settings for small batches do not touch snapshots."""
    own = session.newSession()
    for key, value in _SETTINGS.items():
        own.conf.set(key, value)
    own.dataSource.register(ChangesDataSource)
    return own


def _memory_folder() -> str | None:
    """Checkpoints are needed only as long as the query lives: in memory where the system has such a folder."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
