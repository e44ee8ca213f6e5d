"""The contract every operator of a pipeline keeps. Read this file first.

A pipeline is a tree of operators from sources (tables) to one output. It is used in two ways.

**Fetch** pulls. `fetch(request)` opens a stream of nodes in the input's ordering that satisfy the request. Streams are
lazy; a consumer may stop early, and dropping the stream releases what it holds (generators clean up in
`finally`, and CPython runs that as soon as the stream is unreferenced; `first` closes explicitly).

**Push** pushes. A source that receives a change calls the `Push` its reader has set with `set_output`; each operator
transforms the change and calls its own output, zero or more times. A push is complete, with everything downstream of
it, when the call returns. Changes must be valid: an add only of an absent row, a remove or edit only of a present
one. An operator may fetch from its inputs inside a push and then sees the change already applied; see `source` for
what *other* readers of the same table see at that moment.

**Node** is the short cut between the two: `node(row)` gives the node, relationships attached, of a row which the
caller knows to be in the input's output. It spares a fetch where only the relationships are missing.

**Yielding.** A stream may contain the marker `YIELD` at any place: the time slice is used up. A consumer that is itself
a stream passes the marker on at once and never takes it for a node. Where work happens inside a plain call (a push, or
an EXISTS test) there is no stream to pass it on, so it is dropped there (`nodes`, `first`). Nothing is lost by
that: the marker is produced by a clock that stays expired until the consumer at the top has paused, so the next row
of the outer stream carries the marker again. Pushes are plain calls because a generator per operator
would cost more than the work itself; a caller that pushes many changes pauses between two of them.

Semantics never depend on where markers appear.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from protocol.sync.ast import Ordering, System
from reference_cache.zql.ivm.change import YIELD, Change, Node, Stream
from reference_cache.zql.ivm.position import position_key
from reference_cache.zql.ordering import KeyOf, sort_key
from reference_cache.zql.schema import Row, TableSchema

Push: TypeAlias = Callable[[Change], None]
Columns: TypeAlias = tuple[str, ...]
Key: TypeAlias = Hashable
"""What `ordering.join_key` makes of some columns: equal iff the columns join, None if they can join nothing."""


class StartPosition:
    """A position in an ordering, in the direction of the scan; the row need not exist."""

    __slots__ = ("inclusive", "row")

    def __init__(self, row: Row, *, inclusive: bool) -> None:
        self.row = row
        self.inclusive = inclusive


class AnyOf:
    """The columns' key must be one of these distinct keys (a collection with fast membership)."""

    __slots__ = ("columns", "keys")

    def __init__(self, columns: Columns, keys: Collection[Key]) -> None:
        self.columns = columns
        self.keys = keys


class Request:
    """What a fetch asks for: rows whose `columns` have `key`, that satisfy every `any_of`, from `start` on."""

    __slots__ = ("any_of", "columns", "key", "reverse", "start")

    def __init__(
        self,
        columns: Columns = (),
        key: Key = None,
        any_of: tuple[AnyOf, ...] = (),
        start: StartPosition | None = None,
        reverse: bool = False,
    ) -> None:
        self.columns = columns
        self.key = key
        self.any_of = any_of
        self.start = start
        self.reverse = reverse

    def with_start(self, start: StartPosition | None) -> Request:
        """The same request from another position."""
        return Request(self.columns, self.key, self.any_of, start, self.reverse)


EVERYTHING = Request()


@dataclass(frozen=True, slots=True)
class InputSchema:
    """What an input's nodes look like: their table, ordering, and the schema of each relationship.

    `ordering` is None for inputs without one; `order_key` then follows the primary key, so it is always distinct.
    `position_key` is the same for start positions, which may lack key values.
    """

    table: TableSchema
    ordering: Ordering | None
    relationships: Mapping[str, InputSchema] = field(default_factory=dict)
    hidden: bool = False
    system: System = "client"
    order_key: KeyOf = field(init=False, repr=False, compare=False)
    position_key: KeyOf = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ordering = self.ordering or tuple((column, "asc") for column in self.table.primary_key)
        object.__setattr__(self, "order_key", sort_key(ordering, self.table))
        object.__setattr__(self, "position_key", position_key(ordering, self.table))

    def with_relationship(self, name: str, child: InputSchema, *, hidden: bool, system: System) -> InputSchema:
        """This schema with a relationship added."""
        child = replace(child, hidden=hidden, system=system)
        return replace(self, relationships={**self.relationships, name: child})


class Input(Protocol):
    """Where an operator gets its nodes from."""

    @property
    def schema(self) -> InputSchema:
        """The shape of the nodes; constant."""
        ...

    def set_output(self, push: Push) -> None:
        """Set the receiver of changes; called once, before the first push."""
        ...

    def fetch(self, request: Request) -> Stream:
        """Open a stream of the nodes that satisfy the request."""
        ...

    def node(self, row: Row) -> Node:
        """The node of a row that is in this input's output."""
        ...

    def destroy(self) -> None:
        """Disconnect from the sources; nothing may be called afterwards."""
        ...


def nodes(stream: Stream) -> list[Node]:
    """All nodes of a stream, for use inside plain calls."""
    return [node for node in stream if node is not YIELD]


def first(stream: Stream) -> Node | None:
    """The first node of a stream, which is closed."""
    node = next((each for each in stream if each is not YIELD), None)
    close = getattr(stream, "close", None)
    if close is not None:
        close()
    return node


def no_output(change: Change) -> None:
    """The output of an operator before `set_output`."""
    raise RuntimeError(f"{change!r} was pushed before set_output; connect the pipeline's end first")


def to_nobody(change: Change) -> None:
    """The output of an operator that was destroyed.

    A walk over a source's readers may still reach it. And outputs point up the tree as inputs point down: without them
    a destroyed pipeline is freed immediately, and does not wait for the cycle collector.
    """
