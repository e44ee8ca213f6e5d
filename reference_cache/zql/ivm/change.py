"""What travels through a pipeline: nodes, and the four kinds of change to them.

A node is a row with its relationships. Relationships are lazy: each is a function that opens a stream of child nodes,
and the stream shows the state *at the time it is read*. Nodes and changes are never modified once made, so one
object may be handed to any number of operators.

Rows are plain tuples in their table's column order. These classes are slotted and hand-written rather than
dataclasses because one is made for every row and every change that moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final, TypeAlias, TypeVar

from reference_cache.zql.schema import Row


class Pause(Enum):
    """The type of `YIELD`, so that type checkers distinguish the marker from a node."""

    YIELD = "yield"


YIELD: Final = Pause.YIELD
"""In a stream of nodes: the time slice is used up, other tasks should run; see `operator`."""


class Node:
    """A row and its relationships; never modified."""

    __slots__ = ("relationships", "row")

    def __init__(self, row: Row, relationships: Relationships | None = None) -> None:
        self.row = row
        self.relationships = NO_RELATIONSHIPS if relationships is None else relationships

    def with_relationship(self, name: str, children: Children) -> Node:
        """The same row with one relationship added or replaced."""
        return Node(self.row, {**self.relationships, name: children})

    def __repr__(self) -> str:
        return f"Node({self.row!r}, {sorted(self.relationships)})"


Stream: TypeAlias = Iterable[Node | Pause]
Children: TypeAlias = Callable[[], Stream]
Relationships: TypeAlias = Mapping[str, Children]
NO_RELATIONSHIPS: Final[Relationships] = {}


class Add:
    """A node appears, with its whole subtree."""

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node

    def __repr__(self) -> str:
        return f"Add({self.node!r})"


class Remove:
    """A node disappears, with its whole subtree."""

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node

    def __repr__(self) -> str:
        return f"Remove({self.node!r})"


class Edit:
    """A row's values change; its relationships are guaranteed to stay as they are."""

    __slots__ = ("node", "old_node")

    def __init__(self, node: Node, old_node: Node) -> None:
        self.node = node
        self.old_node = old_node

    def __repr__(self) -> str:
        return f"Edit({self.node!r}, was {self.old_node!r})"


class Child:
    """The row stays; `change` applies to its relationship `name`. `node` already shows the state afterwards."""

    __slots__ = ("change", "name", "node")

    def __init__(self, node: Node, name: str, change: Change) -> None:
        self.node = node
        self.name = name
        self.change = change

    def __repr__(self) -> str:
        return f"Child({self.node!r}, {self.name!r}, {self.change!r})"


Change: TypeAlias = Add | Remove | Edit | Child
SourceChange: TypeAlias = Add | Remove | Edit
C = TypeVar("C", bound=Change)


def add(row: Row) -> Add:
    """A row was inserted into a table."""
    return Add(Node(row))


def remove(row: Row) -> Remove:
    """A row was deleted from a table."""
    return Remove(Node(row))


def edit(row: Row, old_row: Row) -> Edit:
    """A row of a table was changed; the key may have changed too."""
    return Edit(Node(row), Node(old_row))


def filter_change(change: C, passes: Callable[[Row], bool]) -> C | Add | Remove | None:
    """What a filter on rows leaves of a change; None if nothing.

    An edit of a row that passed only before it, or passes only after it, becomes a remove or an add.
    """
    if not isinstance(change, Edit):
        return change if passes(change.node.row) else None
    if passes(change.node.row):
        return change if passes(change.old_node.row) else Add(change.node)
    return Remove(change.old_node) if passes(change.old_node.row) else None
