"""A streaming data source over an adapter's `changes()`: the reading half of the micro-batch lane.

Spark runs it in one Python process next to the driver; that process has the adapter and its connection. Transactions
are sent in pieces of bounded size: a batch has many small transactions, or a piece of a large one. An offset is the
position of the last whole transaction and the number of pieces so far. A stream starts after the log's last position.
Spark's own checkpoint is never used to resume, so a transaction that was interrupted is read again from its beginning.

Each change is one row of the stream (pickled). Each image, a whole row before or after the change, is another, with the
columns that SQL reads in Spark's types. A failure of the upstream is sent as a row too: an exception that Spark carries
to the driver would lose its type and code. A batch that Spark has finished is not yet durable in the log, so the
upstream is acknowledged only up to the position that the driver has written to the file `durable`.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

from changesource_sdk.adapter import Acknowledging, Adapter, BadRow, Delete, Insert, Position, Transaction, Update
from changesource_sdk.contract import checked_transactions
from changesource_sdk.errors import AdapterError, ChangesourceError, InvalidChange
from changesource_sdk.followed_tables import FollowedTables
from changesource_sdk.observe.log_socket import LogReceiverAddress, send_logs
from changesource_sdk.pipeline.mapping.images import Image, images
from changesource_sdk.pipeline.mapping.row import RowMapper
from changesource_sdk.pipeline.mapping.table import MappedTable
from changesource_sdk.pipeline.patience import Patience
from changesource_sdk.pipeline.snapshot.take import adapter_call
from changesource_sdk.pipeline.source import SourceSpec
from changesource_sdk.pipeline.spark.sql.mapping import SqlInputs, Values
from changesource_sdk.pipeline.tail import POLL_INTERVAL_S
from changesource_sdk.positions import from_text, to_text
from changesource_sdk.schema import Table, canonical_name

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMAT = "changesource"
TRANSACTION, CHANGE, IMAGE, TABLE, PAYLOAD = (
    f"_changesource_{name}" for name in ("transaction", "change", "image", "table", "payload")
)
IDS = (TRANSACTION, CHANGE, IMAGE)
IMAGES: Mapping[Image, int] = {"before": 1, "after": 2}
HEAD, FAILURE, NO_TABLE = -1, -2, -1
END = 1 << 62
WAIT_S = 0.2
MOST_ROWS = 20_000
MOST_BYTES = 8 * 1024 * 1024
"""A piece ends with the change that reaches either limit; the reading thread pauses while this much is waiting."""

Offset = dict[str, object]


@dataclass(frozen=True, slots=True)
class ReaderSpec:
    """The settings of the reading process; they are in a file that only its owner can read."""

    source: SourceSpec
    after: Position
    tables: Sequence[MappedTable]
    durable: Path
    logs: LogReceiverAddress | None = None  # where the process sends what it logs
    upstream: Sequence[Table] = ()  # the adapter's own tables at `after`

    @property
    def answered(self) -> Path:
        """The file that the reading process leaves once the upstream has answered it."""
        return self.durable.with_name("answered")


@dataclass(frozen=True, slots=True)
class TransactionHead:
    """A transaction without its changes, and when it was read from the upstream (`read_at`, epoch seconds)."""

    position: Position
    commit_time_ms: float | None
    watermark: str | None
    read_at: float


def stream_schema(tables: Sequence[MappedTable]) -> StructType:
    """Return the columns of the stream: what a row is, the pickled change, then the columns of every table with SQL."""
    from pyspark.sql.types import BinaryType, LongType, StructField, StructType

    fields = [StructField(name, LongType()) for name in (*IDS, TABLE)]
    fields.append(StructField(PAYLOAD, BinaryType()))
    for number, table in enumerate(tables):
        inputs = SqlInputs(table.source).schema().fields
        fields += [StructField(cell(number, index), field.dataType) for index, field in enumerate(inputs)]
    return StructType(fields)


def cell(table: int, column: int) -> str:
    """Return the stream's name for a table's column; both are numbers from 0."""
    return f"_{table}_{column}"


class StreamRows:
    """Turns transactions into rows of the stream."""

    def __init__(self, tables: Sequence[MappedTable]) -> None:
        self._blank: list[Values] = [(None,) * len(table.source.columns) for table in tables]
        self._tables = {
            table.source.full_name: (number, RowMapper(table), SqlInputs(table.source))
            for number, table in enumerate(tables)
        }

    def of(self, number: int, transaction: Transaction) -> Iterator[list[Values]]:
        """Yield groups of rows: the head, each change with its images, the end. `number` counts transactions."""
        position, time_ms, watermark = transaction.position, transaction.commit_time_ms, transaction.watermark
        yield [self._plain(number, HEAD, TransactionHead(position, time_ms, watermark, time.time()))]
        for index, change in enumerate(transaction.changes):
            if isinstance(change, Insert | Update | Delete):
                yield self._with_images(number, index, change)
            else:
                yield [self._plain(number, index, change)]
        yield [self._plain(number, END, None)]

    def failure(self, error: ChangesourceError) -> Values:
        """The row that carries an error."""
        return self._plain(0, FAILURE, error)

    def _with_images(self, number: int, index: int, change: Insert | Update | Delete) -> list[Values]:
        """A change and its images, or what it is without those that Spark cannot take (`_readable`)."""
        for attempt in (change, *self._readable(change)):
            try:
                return [self._plain(number, index, attempt), *self._images(number, index, attempt)]
            except InvalidChange as error:
                refused = error
        if isinstance(change, Delete):
            # Consumers without the row ignore its deletion, so it need not be known whether it passed the filter.
            return [self._plain(number, index, change)]
        old_key = change.old_key if isinstance(change, Update) else None
        return [self._plain(number, index, BadRow(change.table, change.row, old_key, refused))]

    def _readable(self, change: Insert | Update | Delete) -> Iterator[Update | Delete]:
        """The change with the key alone of the row before it: that row may have had a bad value."""
        known = self._tables.get(canonical_name(change.table))
        before = None if isinstance(change, Insert) else change.key if isinstance(change, Delete) else change.old_key
        if known is None or before is None or isinstance(change, Insert):
            return
        if isinstance(change, Update) and not known[1].is_whole(change.row):
            # The rest of the row is in the one before it.
            return
        key = {name: before[name] for name in known[1].table.source.key if name in before}
        yield replace(change, key=key) if isinstance(change, Delete) else replace(change, old_key=key)

    def _plain(self, number: int, index: int, payload: object) -> Values:
        return (number, index, 0, NO_TABLE, pickle.dumps(payload), *self._cells(NO_TABLE, ()))

    def _images(self, number: int, index: int, change: Insert | Update | Delete) -> Iterator[Values]:
        """One row per image. Raises `InvalidChange` for a value that its column does not take."""
        known = self._tables.get(canonical_name(change.table))
        if known is None:
            return
        table, mapper, inputs = known
        for image, row in images(mapper, change).items():
            yield (number, index, IMAGES[image], table, None, *self._cells(table, inputs.values(row)))

    def _cells(self, table: int, values: Values) -> Iterator[object]:
        for number, blank in enumerate(self._blank):
            yield from values if number == table else blank


@dataclass(frozen=True, slots=True)
class RowsPiece:
    """Rows of one transaction, all or some; `size` in bytes. `position` is set if the transaction ends here."""

    rows: list[Values]
    size: int
    position: str | None = None


def pieces(
    rows: Iterable[list[Values]], position: str, most_rows: int = MOST_ROWS, most_bytes: int = MOST_BYTES
) -> Iterator[RowsPiece]:
    """Divide the rows of a transaction into pieces; a change and its images stay in one piece."""
    held: list[Values] = []
    size = 0
    for group in rows:
        if len(held) >= most_rows or size >= most_bytes:
            yield RowsPiece(held, size)
            held, size = [], 0
        held += group
        size += sum(len(value) for row in group for value in row if isinstance(value, str | bytes))
    yield RowsPiece(held, size, position)


class ChangesDataSource(DataSource):
    """The data source that Spark loads; its option `source` is the path of a pickled `ReaderSpec`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: N802
        """Return the reader; Spark calls this in the process where it will run."""
        source: ReaderSpec = pickle.loads(Path(self.options["source"]).read_bytes())
        return ChangesReader(source)


class ChangesReader(SimpleDataSourceStreamReader):
    """The reader that Spark calls. Spark pickles it before the first `read`: thread and adapter are in `ReadAhead`."""

    def __init__(self, source: ReaderSpec) -> None:
        self._source = source
        # Made by the first `read`, in the process where Spark reads.
        self._ahead: ReadAhead | None = None

    def __reduce__(self) -> tuple[type[ChangesReader], tuple[ReaderSpec]]:
        return ChangesReader, (self._source,)

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the offset at which the log ends.

        Spark starts with a batch even if there is nothing to read, and would let executors read it, which have no
        adapter. So the first `read` always advances the offset, by setting `begun`.
        """
        return {"position": to_text(self._source.after), "pieces": 0, "failed": False, "begun": False}

    def read(self, start: Offset) -> tuple[Iterator[Values], Offset]:
        """Return the rows of all waiting pieces, after at most WAIT_S seconds, and the offset behind them.

        A failure is a row as well, once, and only when everything that was read before it has been returned.
        """
        if self._ahead is None:
            self._ahead = ReadAhead(self._source)
        taken, failure = self._ahead.take()
        if failure is not None and start["failed"]:
            return iter(()), start
        ended = [piece.position for piece in taken if piece.position is not None]
        count = len(taken) + int(str(start["pieces"]))
        position = [start["position"], *ended][-1]
        end: Offset = {"position": position, "pieces": count, "failed": failure is not None, "begun": True}
        # Spark copies the iterator with `copy.copy`, which works for a list's iterator and not for a generator.
        return iter([row for piece in taken for row in piece.rows] + ([] if failure is None else [failure])), end

    def commit(self, end: Offset) -> None:
        """Called by Spark after a batch: acknowledge upstream what the log holds."""
        if self._ahead is not None and (durable := read_text(self._source.durable)):
            self._ahead.acknowledge(from_text(durable))


def read_text(path: Path) -> str:
    """Return the text of a file; "" if it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""


class ReadAhead:
    """Reads the upstream in a thread. Invariant: pieces that were read before an error are taken before the error.

    Spark's thread calls `take` and `acknowledge`. The thread is a daemon and ends with the process.
    """

    def __init__(self, source: ReaderSpec) -> None:
        send_logs(source.logs)
        self._changed = threading.Condition()  # guards the next two
        # Pieces that were read; the reading thread adds, `take` empties.
        self._waiting: list[RowsPiece] = []
        # What ended the reading thread.
        self._failure: ChangesourceError | None = None
        # Number of transactions read; written by the reading thread.
        self._number = 0
        self._after = source.after
        self._answered = source.answered
        self._has_answered = False  # whether that file is there; written by the reading thread
        # Text of the last position acknowledged upstream; written by `acknowledge`.
        self._acknowledged = ""
        self._rows = StreamRows(source.tables)
        # The adapter's tables at the position that was read last; used by the reading thread.
        self._followed = FollowedTables(source.upstream)
        self._adapter: Adapter = source.source.unmapped().factory()()
        self._patience = Patience()
        threading.Thread(target=self._run, name="changesource-read", daemon=True).start()

    def take(self) -> tuple[list[RowsPiece], Values | None]:
        """Return the waiting pieces, or the row of a failure if there are none; waits at most WAIT_S seconds."""
        self._patience.warn_if_overdue()
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._failure, WAIT_S)
            taken, self._waiting = self._waiting, []
            self._changed.notify_all()
            failed = None if taken or self._failure is None else self._rows.failure(self._failure)
            return taken, failed

    def acknowledge(self, position: Position) -> None:
        """Acknowledge a position upstream, once, if the adapter supports it."""
        if isinstance(self._adapter, Acknowledging) and self._acknowledged != to_text(position):
            self._acknowledged = to_text(position)
            self._adapter.acknowledge(position)

    def _run(self) -> None:
        try:
            with adapter_call("changes()"):
                self._follow()
        except ChangesourceError as error:
            self._fail(error)
        except BaseException as error:
            self._fail(AdapterError("adapter-failed", repr(error), "changes()", "see the adapter"))

    def _follow(self) -> None:
        position, pause = self._after, threading.Event()
        while True:
            before = position
            for transaction in self._patience.answers(partial(self._ask, position)):
                self._note_answer()
                self._put(transaction)
                position = transaction.position
            self._note_answer()
            if position == before:
                pause.wait(getattr(self._adapter, "poll_interval", POLL_INTERVAL_S))

    def _note_answer(self) -> None:
        if not self._has_answered:
            self._has_answered = True
            self._answered.touch()

    def _ask(self, after: Position) -> Iterator[Transaction]:
        self._followed.give_to(self._adapter)
        return checked_transactions(self._adapter.changes(after))

    def _put(self, transaction: Transaction) -> None:
        self._number += 1
        transaction = replace(transaction, changes=self._followed.following(transaction.changes))
        for piece in pieces(self._rows.of(self._number, transaction), to_text(transaction.position)):
            with self._changed:
                self._changed.wait_for(self._has_room)
                self._waiting.append(piece)
                self._changed.notify_all()

    def _has_room(self) -> bool:
        rows, size = sum(len(piece.rows) for piece in self._waiting), sum(piece.size for piece in self._waiting)
        return rows < MOST_ROWS and size < MOST_BYTES

    def _fail(self, error: ChangesourceError) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()
