"""A table as the beginning of pipelines: shared by all its readers, changed one row at a time.

A `Source` has a `RowStore`, where the rows are (`tables.memory`, `tables.followed`), and the connections of all
pipelines that read the table. A `Connection` has its own ordering and filter. `push` writes a change to the store and
pushes it to the connections in creation order, each completely before the next.

**Before or after.** While a change is being pushed, connections that have received it (or receive it now) see the
table with the change, and the others see the table without it. That makes a table joined with itself correct: each
connection moves from the old state to the new one exactly once, at its turn. The store is written first, so connections
that were served read it as it is; for the others the change is undone while they read (`_before`). A connection was
served iff its ordinal is at most `serving`, so connections that a change cannot affect may be left out of the walk.

**Split edits.** Operators above may rely on an edit never changing the columns they join by. A connection names those
columns in `split_columns`; an edit changing one of them for *any* connection is pushed as a remove and an add to
all. A null counts as changed even if it stays null.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from protocol.sync.ast import Condition, Ordering, has_more_parts
from reference_cache.zql.ivm.change import YIELD, Add, Edit, Node, Remove, SourceChange, Stream, filter_change
from reference_cache.zql.ivm.effort import Effort
from reference_cache.zql.ivm.operator import Columns, InputSchema, Key, Push, Request, no_output, to_nobody
from reference_cache.zql.ivm.reader_groups import Lookup
from reference_cache.zql.ivm.routing import FEW_READERS, Route, Routes, Under
from reference_cache.zql.ivm.store import KeyExtractors, RowStore, SourceError, matches
from reference_cache.zql.ordering import KeyOf, is_total
from reference_cache.zql.predicate import Predicate, compile_predicate, weaken
from reference_cache.zql.schema import Row

ROWS_BETWEEN_CLOCK_READINGS = 64
"""Rows of a fetch between two calls of `expired`."""

HEAVY_CONDITION = 300
"""Conditions with more parts than this take so long to test that the time limit must be checked around the test."""

Expired = Callable[[], bool]
"""Returns whether the time slice is used up; stays true until the consumer of the stream has paused."""

OnFailure = Callable[[Exception], None]
"""Called with the exception that a pipeline raised while a change was pushed through it; destroys the pipeline."""


def never_ignored(change: SourceChange) -> bool:
    """The `is_ignored` of a connection without a limit: no change is ignored."""
    return False


class Connection:
    """One pipeline's view of a source: an input without relationships.

    Invariant: it shows each source change either not at all or completely, changing state at its turn in the walk.
    `is_ignored` tests whether the limit at the end of its level ignores a change, so that the operators in between can
    skip it; see `Take.ignores`.
    """

    __slots__ = (
        "_reader",
        "condition",
        "fully_applied",
        "is_heavy",
        "is_ignored",
        "on_failure",
        "ordinal",
        "output",
        "owner",
        "predicate",
        "route",
        "schema",
        "source",
        "split_columns",
    )

    def __init__(
        self, source: Source, ordinal: int, ordering: Ordering | None, where: Condition | None, split: frozenset[str]
    ) -> None:
        condition, weakened = weaken(where)
        # The source that is read; replaced by `move_to`.
        self.source = source
        # The number in the source's order of creation; replaced by `move_to`.
        self.ordinal = ordinal
        self.condition = condition
        self.split_columns = split
        self.fully_applied = not weakened
        self.is_heavy = condition is not None and has_more_parts(condition, HEAVY_CONDITION)
        self.schema = InputSchema(source.table, ordering)
        # Set by `Source.connect`.
        self.route: Route
        # Set by the operator that reads it, and again by `destroy`.
        self.output: Push = no_output
        # Both set by `Engine`: called when a push through this connection raises (None: the push raises), and whose
        # pipeline it is, for the costs of pushes.
        self.on_failure: OnFailure | None = None
        self.owner: object = None
        # Set by `build`, for levels with a limit and subqueries.
        self.is_ignored: Callable[[SourceChange], bool] = never_ignored
        self.predicate: Predicate | None = None if condition is None else compile_predicate(condition, source.table)
        # Reads the source's store; replaced by `move_to`.
        self._reader = source.store.reader(ordering, condition)

    def set_output(self, push: Push) -> None:
        self.output = push

    def fetch(self, request: Request) -> Stream:
        source = self.source
        rows = self._reader.rows(request)
        if source.passing is not None and self.ordinal > source.serving:
            rows = self._before(rows, request, source.passing)
        return map(Node, rows) if source.expired is None else _paced(rows, source.expired)

    def node(self, row: Row) -> Node:
        return Node(row)

    def destroy(self) -> None:
        self.source.disconnect(self)
        self.output, self.is_ignored, self.on_failure = to_nobody, never_ignored, None

    def move_to(self, source: Source, ordinal: int) -> None:
        """Read another source of the same table from now on, under the ordinal that it assigned."""
        self.source, self.ordinal = source, ordinal
        self._reader = source.store.reader(self.schema.ordering, self.condition)

    def push(self, change: SourceChange) -> None:
        """Push a change to the output, as far as it passes the filter, unless the limit above ignores it."""
        passed: SourceChange | None = change if self.predicate is None else filter_change(change, self.predicate)
        if passed is not None and not self.is_ignored(passed):
            self.output(passed)

    def _before(self, rows: Iterator[Row], request: Request, change: SourceChange) -> Iterator[Row]:
        """The rows as they were before the change that is being pushed."""
        if not isinstance(change, Remove):
            key, hidden = self.source.key, self.source.key(change.node.row)
            rows = (row for row in rows if key(row) != hidden)
        if isinstance(change, Add):
            return rows
        old = change.node.row if isinstance(change, Remove) else change.old_node.row
        return self._with(old, rows, request.reverse) if self._matches(old, request) else rows

    def _matches(self, row: Row, request: Request) -> bool:
        if self.predicate is not None and not self.predicate(row):
            return False
        return matches(row, request, self.source.keys, self.schema.order_key, self.schema.position_key)

    def _with(self, row: Row, rows: Iterator[Row], reverse: bool) -> Iterator[Row]:
        if self.schema.ordering is None:
            return chain((row,), rows)
        return _spliced(row, rows, self.schema.order_key, reverse)


def _spliced(row: Row, rows: Iterator[Row], order_key: KeyOf, reverse: bool) -> Iterator[Row]:
    key = order_key(row)
    placed = False
    for each in rows:
        if not placed and (order_key(each) < key if reverse else key < order_key(each)):
            placed = True
            yield row
        yield each
    if not placed:
        yield row


def _paced(rows: Iterator[Row], expired: Expired) -> Stream:
    if expired():
        yield YIELD
    for count, row in enumerate(rows, 1):
        if not count % ROWS_BETWEEN_CLOCK_READINGS and expired():
            yield YIELD
        yield Node(row)


class Source:
    """A table and its readers.

    Invariant: between two pushes every connection and the store agree on the rows.
    """

    def __init__(
        self,
        store: RowStore,
        *,
        expired: Expired | None = None,
        effort: Effort | None = None,
        few_readers: int = FEW_READERS,
    ) -> None:
        self.store = store
        self.table = store.table
        self.keys = KeyExtractors(store.table)
        self.key = self.keys[store.table.primary_key]
        self.expired = expired if effort is None else effort.expired
        self._effort = effort
        # The change that is being pushed, None between pushes; written by `_push`.
        self.passing: SourceChange | None = None
        # The ordinal of the connection that `passing` is being pushed to; written by `_push`.
        self.serving = 0
        self._routes: Routes[Connection] = Routes(store.table, self._rows_with, few_readers)
        # The ordinal of the next connection; counted up by `connect` and `adopt`.
        self._next_ordinal = 1
        # How many connections split edits of each column; written by `connect`, `adopt` and `disconnect`.
        self._split_counts: Counter[str] = Counter()
        # The indexes of these columns in a row; written together with `_split_counts`.
        self._split_indexes: tuple[int, ...] = ()

    @property
    def connections(self) -> Iterable[Connection]:
        """The readers, in creation order."""
        return self._routes.readers()

    def connect(
        self,
        ordering: Ordering | None,
        where: Condition | None = None,
        split_columns: Iterable[str] = (),
        under: Under | None = None,
    ) -> Connection:
        """Open a reader; EXISTS conditions in `where` are left out (`fully_applied` says whether there were any).

        `under` says how the reader's level is joined to the one above it, for routing.
        Raises `SourceError` for orderings that are not total or name a json column.
        """
        if ordering is not None:
            self._check_ordering(ordering)
        connection = Connection(self, self._next_ordinal, ordering, where, frozenset(split_columns))
        self._next_ordinal += 1
        connection.route = self._routes.enter(connection, under)
        self._note_split(connection)
        return connection

    def adopt(self, connection: Connection) -> None:
        """Take over a reader of another source of the same table, which has the same rows; see `Engine.adopt`."""
        connection.source.disconnect(connection)
        connection.move_to(self, self._next_ordinal)
        self._next_ordinal += 1
        self._routes.adopt(connection, connection.route)
        self._note_split(connection)

    def _note_split(self, connection: Connection) -> None:
        self._split_counts.update(connection.split_columns)
        self._split_indexes = self._indexes_to_split()

    def _check_ordering(self, ordering: Ordering) -> None:
        if not is_total(ordering, self.table):
            raise SourceError(
                f"ordering {list(ordering)} of table {self.table.name!r} lacks a primary-key column; complete it first"
            )
        for column, _ in ordering:
            if self.table.columns[column].type == "json":
                raise SourceError(f"{self.table.name}.{column} is json and has no order; order by another column")

    def disconnect(self, connection: Connection) -> None:
        """Remove a reader; it may have been removed before."""
        if not self._routes.leave(connection):
            return
        self._split_counts.subtract(connection.split_columns)
        self._split_counts += Counter()
        self._split_indexes = self._indexes_to_split()

    def _indexes_to_split(self) -> tuple[int, ...]:
        return self.table.positions(sorted(self._split_counts))

    def push(self, change: SourceChange) -> None:
        """Change the table and push the change to every reader it can affect.

        Raises `SourceError`, with nothing changed, if the row to add exists or the row to change does not.
        """
        if isinstance(change, Edit) and self._must_split(change.node.row, change.old_node.row):
            self._push(Remove(change.old_node))
            self._push(Add(change.node))
        else:
            self._push(change)

    def _must_split(self, row: Row, old_row: Row) -> bool:
        for index in self._split_indexes:
            value = row[index]
            if value is None or value != old_row[index]:
                return True
        return False

    def _push(self, change: SourceChange) -> None:
        self.store.apply(change)
        self.passing = change
        self.serving = 0
        effort = self._effort
        try:
            for connection in self._readers_of(change):
                self.serving = connection.ordinal
                if effort is not None:
                    effort.turn += 1
                    effort.owner = connection.owner
                try:
                    if connection.is_heavy:
                        self._push_heavy(connection, change)
                    else:
                        connection.push(change)
                except Exception as error:
                    if connection.on_failure is None:
                        raise
                    connection.on_failure(error)
        finally:
            self.passing = None

    def _push_heavy(self, connection: Connection, change: SourceChange) -> None:
        """Push to a reader whose condition alone takes long, with the clock read before and after."""
        if self.expired is not None:
            self.expired()
        connection.push(change)
        if self.expired is not None:
            self.expired()

    def _readers_of(self, change: SourceChange) -> Iterable[Connection]:
        """The connections the change can affect, in creation order."""
        old = change.old_node.row if isinstance(change, Edit) else None
        return self._routes.visits(change.node.row, old)

    def _rows_with(self, columns: Columns) -> Lookup:
        """A function from a key of these columns to the rows that have it now, in any order."""
        reader = self.store.reader(None, None)

        def rows(key: Key) -> Iterator[Row]:
            return reader.rows(Request(columns, key))

        return rows
