"""The micro-batch lane: Structured Streaming for sources whose mappings use Spark SQL.

A streaming query reads the store's transactions (`change_source`), Spark evaluates the expressions on the rows before
and after each change, and `foreachBatch` hands whole transactions, in their order, to the same tail that the other
lanes run. A batch ends only when the log holds it, and the log tells a position it has from a new one in the
transaction that appends it: whatever Spark or a restart repeats is stored once. Every query begins after the log's last
position with a checkpoint of its own, so Spark's bookkeeping is never what decides where to go on.

Latency is a batch's: some hundred milliseconds where a resident task needs a few. The lane is chosen only for sources
that need it. A transaction is held in memory whole.
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from changesource_sdk.adapter import Change, Position, Snapshot, Table, Transaction
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.errors import ChangesourceError
from changesource_sdk.observe.logs import event, logger
from changesource_sdk.observe.stages import Stage
from changesource_sdk.pipeline.adapter_factory import adapter_factory, opened
from changesource_sdk.pipeline.appending import append_tail
from changesource_sdk.pipeline.change_images import Image, with_slots
from changesource_sdk.pipeline.change_mapping import ChangeMapper
from changesource_sdk.pipeline.mapped import MappedAdapter
from changesource_sdk.pipeline.mapping import needs_spark
from changesource_sdk.pipeline.spark.change_source import (
    CHANGE,
    FAILURE,
    FORMAT,
    HEAD,
    IDS,
    IMAGE,
    IMAGES,
    NO_TABLE,
    PAYLOAD,
    TABLE,
    TRANSACTION,
    ChangesDataSource,
    StreamSource,
    TransactionHead,
    cell,
    stream_schema,
)
from changesource_sdk.pipeline.spark.job import SparkFailure
from changesource_sdk.pipeline.spark.mapping import SlotReader, check_sql, explained, gist
from changesource_sdk.pipeline.table_mapping import MappedTable, map_tables
from changesource_sdk.positions import to_text

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logger("spark")
_LOOK_UP_S = 0.25
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


def follow(
    session: SparkSession,
    adapter: str,
    settings: Mapping[str, object],
    store: LogStore,
    stage: Stage,
    stop: threading.Event,
    progressed: Callable[[], None],
) -> None:
    """Follow a mapped source until `stop` is set or a snapshot is due; raises what ended it otherwise."""
    with opened(adapter_factory(adapter, settings)) as made:
        assert isinstance(made, MappedAdapter)
        reason = f"{needs_spark(made.mappings)} is Spark SQL"
        event(_log, logging.INFO, "the micro-batch lane follows the source", reason=reason)
        writer = store.open_writer(lambda: int(time.time() * 1_000_000))
        try:
            source = MicroBatchSource(session, adapter, settings, made, store, stage)
            stage.update(lane=LANE)
            append_tail(source, writer, store, stage, stop, progressed=progressed)
        finally:
            writer.close()


class MicroBatchSource:
    """A source whose transactions come out of a streaming query, already evaluated; to the tail it is an adapter.

    Invariant: a batch of the query ends only after the tail acknowledged its last transaction.
    """

    poll_interval = 0.0

    def __init__(
        self,
        session: SparkSession,
        adapter: str,
        settings: Mapping[str, object],
        mapped: MappedAdapter,
        store: LogStore,
        stage: Stage,
    ) -> None:
        self._session = _tuned(session)
        self._adapter = adapter
        self._settings = settings
        self._mapped = mapped
        self._known = store.open_reader()
        self._stage = stage
        self._waiting: queue.Queue[Transaction | ChangesourceError] = queue.Queue()
        self._changed = threading.Condition()
        self._acknowledged = ""
        self._closed = False
        self._latencies: deque[float] = deque(maxlen=_KEPT_LATENCIES)
        self._query: StreamingQuery | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="changesource-stream-", dir=_memory_folder())

    def tables(self) -> Sequence[Table]:
        """The tables as consumers get them."""
        return self._mapped.tables()

    def snapshot(self) -> Snapshot:
        """The store's snapshot, mapped."""
        return self._mapped.snapshot()

    def changes(self, after: Position) -> Iterator[Transaction]:
        """What the query gives, as long as it gives something; the query goes on between two calls."""
        if self._query is None:
            self._start(after)
        while not self._closed:
            try:
                found = self._waiting.get(timeout=_LOOK_UP_S)
            except queue.Empty:
                self._check_query()
                return
            if isinstance(found, ChangesourceError):
                raise found
            yield found

    def acknowledge(self, position: Position) -> None:
        """The log holds everything up to here: the batch that waits for it may end."""
        with self._changed:
            self._acknowledged = to_text(position)
            self._changed.notify_all()

    def close(self) -> None:
        """Stop the query; a batch in flight is given up, and read again by the next query if the log lacks it."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        if self._query is not None:
            self._query.stop()
        self._known.close()
        self._folder.cleanup()

    def _start(self, after: Position) -> None:
        sources = map_tables(self._mapped.inner.tables(), self._mapped.mappings)
        tables = [table for table in sources.values() if table.mapping.sql]
        mapper = ChangeMapper(sources, self._mapped.mappings)
        batches = Batches(self._session, tables)
        described = Path(self._folder.name) / "source"
        described.write_bytes(pickle.dumps(StreamSource(self._adapter, dict(self._settings), after, tables)))
        stream = self._session.readStream.format(FORMAT).schema(stream_schema(tables))
        writer = stream.option("source", str(described)).load().writeStream
        writer = writer.foreachBatch(lambda frame, number: self._on_batch(batches, mapper, frame))
        writer = writer.option("checkpointLocation", f"file://{self._folder.name}/checkpoint")
        self._query = writer.trigger(processingTime="0 seconds").start()

    def _on_batch(self, batches: Batches, mapper: ChangeMapper, frame: DataFrame) -> None:
        """One batch: evaluate, hand over, wait until it is durable."""
        try:
            heads = []
            for head, changes in batches.evaluated(frame):
                heads.append(head)
                mapped = mapper.changes(changes)
                self._waiting.put(Transaction(head.position, mapped, head.commit_time_ms, head.watermark))
        except ChangesourceError as error:
            self._waiting.put(error)
            raise
        if heads:
            self._until_durable(heads[-1].position)
            self._note_latency(heads[0].read_at)

    def _until_durable(self, position: Position) -> None:
        wanted = to_text(position)
        with self._changed:
            while not self._closed and self._acknowledged != wanted:
                # A transaction that the log had already is passed over and never acknowledged.
                if not self._changed.wait(_LOOK_UP_S) and self._known.knows(position):
                    return
            if self._closed:
                raise RuntimeError("the pipeline stopped before the log held this batch")

    def _note_latency(self, read_at: float) -> None:
        self._latencies.append((time.time() - read_at) * 1000)
        self._stage.update(latency_ms=round(median(self._latencies), 1))

    def _check_query(self) -> None:
        """Raise what ended the query, if something did."""
        query = self._query
        if query is None or query.isActive or self._closed:
            return
        error = query.exception()
        raise SparkFailure(
            "stream-failed",
            gist(str(error)) if error is not None else "the streaming query ended",
            where="micro-batch lane",
            fix="see spark.log in the state directory; the query is started again with a growing delay",
        )


class Batches:
    """Evaluates batches of the stream: rows of Spark in, whole transactions with their slots out."""

    def __init__(self, session: SparkSession, tables: Sequence[MappedTable]) -> None:
        self._tables = tables
        checked = [check_sql(session, table) for table in tables]
        self._columns: list[list[SparkColumn]] = [columns for columns, _ in checked]
        self._readers: list[SlotReader] = [reader for _, reader in checked]

    def evaluated(self, frame: DataFrame) -> list[tuple[TransactionHead, list[Change]]]:
        """The transactions of a batch, in the order of the store."""
        try:
            rows = self._with_results(frame).collect()
        except Exception as error:
            raise explained(error, self._tables) or _failure(error) from error
        rows.sort(key=lambda row: (row[TRANSACTION], row[CHANGE], row[IMAGE]))
        return [self._transaction(group) for _, group in groupby(rows, key=lambda row: row[TRANSACTION])]

    def _with_results(self, frame: DataFrame) -> DataFrame:
        """Changes as they are, and beside them the results of each table's expressions on its images."""
        from pyspark.sql import functions

        found = frame.where(frame[TABLE] == NO_TABLE).select(*IDS, PAYLOAD)
        for number, (table, columns) in enumerate(zip(self._tables, self._columns, strict=True)):
            names = [frame[cell(number, i)].alias(name) for i, name in enumerate(table.source.column_names)]
            inputs = frame.where(frame[TABLE] == number).select(*IDS, *names)
            results = inputs.select(*IDS, functions.struct(*columns).alias(f"_{number}"))
            found = found.unionByName(results, allowMissingColumns=True)
        return found

    def _transaction(self, rows: Iterable[Row]) -> tuple[TransactionHead, list[Change]]:
        groups = [list(group) for _, group in groupby(rows, key=lambda row: row[CHANGE])]
        first = pickle.loads(groups[0][0][PAYLOAD])
        if groups[0][0][CHANGE] == FAILURE:
            raise first
        assert groups[0][0][CHANGE] == HEAD
        return first, [self._change(*group) for group in groups[1:]]

    def _change(self, row: Row, *image_rows: Row) -> Change:
        change: Change = pickle.loads(row[PAYLOAD])
        slots: dict[Image, dict[str, object]] = {}
        for image, number in IMAGES.items():
            for found in image_rows:
                if found[IMAGE] == number:
                    slots[image] = self._slots(found)
        return with_slots(change, slots)

    def _slots(self, row: Row) -> dict[str, object]:
        number = next(n for n in range(len(self._tables)) if row[f"_{n}"] is not None)
        return self._readers[number].read(row[f"_{number}"])


def _failure(error: Exception) -> SparkFailure:
    return SparkFailure("spark-job-failed", gist(str(error)), "micro-batch lane", "see spark.log; it is tried again")


def _tuned(session: SparkSession) -> SparkSession:
    """A session of its own, so that the settings for small batches do not touch snapshots."""
    own = session.newSession()
    for key, value in _SETTINGS.items():
        own.conf.set(key, value)
    own.dataSource.register(ChangesDataSource)
    return own


def _memory_folder() -> str | None:
    """Checkpoints are needed only as long as the query lives: in memory where the system has such a folder."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
