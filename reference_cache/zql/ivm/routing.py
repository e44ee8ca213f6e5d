"""Which connections of a source a change is pushed to.

A source with thousands of connections cannot push every change to all of them. `Routes` puts each one into the most
selective group that fits it (see `reader_groups`) and finds the few that a change can affect, in creation order. Up to
`FEW_READERS` connections it returns all of them, and no index is ever filled.

A connection is left out only if the push would have had no effect: its filter would have dropped the change, or the
limit above it keeps no state for the row's key, or the join above it would have found no row to join it with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from protocol.sync.ast import Condition
from reference_cache.zql.ivm.reader_groups import (
    Columns,
    Group,
    Key,
    LinkedGroup,
    Lookup,
    Member,
    PinnedGroup,
    Pins,
    WatchedGroup,
    pins_of,
)
from reference_cache.zql.schema import Row, TableSchema

FEW_READERS = 16
"""Up to this many connections, visiting each is cheaper than a lookup."""


class RoutedReader(Protocol):
    """What routing uses of a connection."""

    @property
    def ordinal(self) -> int:
        """Its number in the order of creation."""
        ...

    @property
    def condition(self) -> Condition | None:
        """Its subquery-free filter."""
        ...


R = TypeVar("R", bound=RoutedReader)


class Clock:
    """Counts the calls of `Route.watch` on a table, so that a walk under way notices that it must search again."""

    __slots__ = ("ticks",)

    def __init__(self) -> None:
        self.ticks = 0


class Route:
    """How a reader is found among the readers of its table; lasts as long as the reader.

    `tables` are those that are read to find the reader; `clocks` those of the tables where watching changes the answer.
    Everything is replaced by `replace_with`, when a better route is known or another source adopts the reader.
    """

    __slots__ = ("clocks", "group", "member", "name", "needs", "routes", "tables", "under")

    def __init__(self, routes: Routes[Any], name: object, group: Group, member: Member) -> None:
        # `under` and `needs` are what the route was derived from; another source that adopts the reader derives a new
        # route from them. Set by `Routes.enter`.
        self.under: Under | None = None
        # The arguments of all calls of `need`.
        self.needs: list[tuple[Route, Columns, Columns]] = []
        # The four below and the sets are replaced together, by `replace_with`. Where the reader is entered:
        self.routes = routes
        # The group's name in `Routes._groups`.
        self.name = name
        # Where `routes` searches for the reader.
        self.group = group
        # The reader's entry in `group`.
        self.member = member
        self.tables = frozenset((routes.table.name,))
        self.clocks = frozenset((routes.clock,)) if isinstance(group, WatchedGroup) else frozenset()

    def watch(self, key: Key) -> None:
        """The limit that ends the reader's level keeps state for a join key from now on."""
        self.group.watch(self.member, key)
        self.routes.clock.ticks += 1

    def replace_with(self, other: Route) -> None:
        """Become the route `other`: other levels keep this object."""
        self.routes, self.name, self.group, self.member = other.routes, other.name, other.group, other.member
        self.tables, self.clocks = other.tables, other.clocks

    def need_again(self) -> None:
        """Repeat all calls of `need`, after the reader was adopted by another source's `Routes`."""
        needs, self.needs = self.needs, []
        for each in needs:
            self.need(*each)

    def need(self, child: Route, columns: Columns, child_columns: Columns) -> None:
        """Every row of the reader's level must have a row of the child level, joined by these columns."""
        self.needs.append((child, columns, child_columns))
        self.routes.narrow(self, child, columns, child_columns)


@dataclass(frozen=True, slots=True, eq=False)
class Under:
    """How a level is joined to the level above: that level's route, and the columns of both sides.

    `limited` says that the level ends in a limit kept per join key, which calls `Route.watch`.
    """

    parent: Route
    parent_columns: Columns
    child_columns: Columns
    limited: bool


class Routes(Generic[R]):
    """The readers of one table.

    Invariant: every reader is in exactly one group. `rows_with(columns)` returns a function from a join key to the
    table's present rows. While there are at most `few` readers, `visits` returns all of them without a search.
    """

    def __init__(self, table: TableSchema, rows_with: Callable[[Columns], Lookup], few: int = FEW_READERS) -> None:
        self.table = table
        self.rows_with = rows_with
        self.clock = Clock()
        self._few = few
        # The clocks of all routes so far; `_add` adds to it.
        self._clocks: frozenset[Clock] = frozenset()
        # Readers by ordinal, in creation order; written by `_enter` and `leave`.
        self._readers: dict[int, R] = {}
        # Their routes by ordinal; written by `_add` and `leave`.
        self._by_ordinal: dict[int, Route] = {}
        # All readers while there are few of them, else empty; see `_list_all`.
        self._all: list[R] = []
        # By name, each with the ordinals of its readers; written by `_add` and `_remove`.
        self._groups: dict[object, tuple[Group, set[int]]] = {}

    def enter(self, reader: R, under: Under | None = None) -> Route:
        """Add a reader and return its route; ordinals must ascend."""
        route = self._find(reader, pins_of(reader.condition, self.table), under)
        route.under = under
        self._enter(reader, route)
        return route

    def adopt(self, reader: R, route: Route) -> None:
        """Add a reader that has left other routes, with its route object and the keys watched there.

        The level above it must have been adopted before. The caller then calls `Route.need_again` for all levels.
        """
        keys = route.member.keys
        route.replace_with(self._find(reader, route.member.pins, route.under))
        self._enter(reader, route)
        for key in keys:
            route.watch(key)

    def _find(self, reader: R, pins: Pins, under: Under | None) -> Route:
        if under is not None and under.limited:
            return self._watched(reader, pins, under.child_columns)
        if under is not None and under.parent.group.selective:
            return self._linked(reader, pins, under.child_columns, under.parent, under.parent_columns)
        group = self._known(name := ("pinned", pins.columns)) or PinnedGroup(self.table, pins.columns)
        return Route(self, name, group, Member(reader, reader.ordinal, pins, None))

    def _enter(self, reader: R, route: Route) -> None:
        self._readers[reader.ordinal] = reader
        self._list_all()
        self._add(route)
        if len(self._readers) > self._few:
            self._begin()

    def narrow(self, route: Route, child: Route, columns: Columns, child_columns: Columns) -> None:
        """Search for a reader by the child rows that its level needs, if its present route is not selective.

        Not if that search would read this same table: while a change of the table is pushed, the child side may still
        see the table without the change.
        """
        if route.group.selective or not child.group.selective or self.table.name in child.tables:
            return
        self._remove(route)
        route.replace_with(self._linked(route.member.reader, route.member.pins, columns, child, child_columns))
        self._add(route)

    def _watched(self, reader: R, pins: Pins, columns: Columns) -> Route:
        name = ("watched", pins.columns, columns)
        group = self._known(name) or WatchedGroup(self.table, pins.columns, columns)
        return Route(self, name, group, Member(reader, reader.ordinal, pins, None))

    def _linked(self, reader: R, pins: Pins, columns: Columns, other: Route, other_columns: Columns) -> Route:
        name = ("linked", pins.columns, columns, other_columns, id(other.group))
        group = self._known(name) or LinkedGroup(
            self.table, pins.columns, columns, other.group, other.routes.rows_with(other_columns)
        )
        route = Route(self, name, group, Member(reader, reader.ordinal, pins, other.member))
        route.tables |= other.tables
        route.clocks |= other.clocks
        return route

    def _known(self, name: object) -> Group | None:
        known = self._groups.get(name)
        return known[0] if known else None

    def _add(self, route: Route) -> None:
        route.group.enter(route.member)
        self._groups.setdefault(route.name, (route.group, set()))[1].add(route.member.ordinal)
        self._by_ordinal[route.member.ordinal] = route
        self._clocks |= route.clocks

    def _remove(self, route: Route) -> None:
        route.group.leave(route.member)
        ordinals = self._groups[route.name][1]
        ordinals.discard(route.member.ordinal)
        if not ordinals:
            del self._groups[route.name]

    def _begin(self) -> None:
        """Fill the indexes now, while readers are being added: the first change would otherwise wait for that."""
        for group, _ in self._groups.values():
            if isinstance(group, WatchedGroup):
                group.begin()

    def leave(self, reader: R) -> bool:
        """Remove a reader; returns whether it was there."""
        route = self._by_ordinal.pop(reader.ordinal, None)
        if route is None:
            return False
        del self._readers[reader.ordinal]
        self._list_all()
        self._remove(route)
        route.member.reader = None  # the reader has the route: without the cycle both are freed immediately
        return True

    def _list_all(self) -> None:
        """Replace the list that `visits` returns. It is never modified: a push under way may be iterating over it."""
        self._all = list(self._readers.values()) if len(self._readers) <= self._few else []

    def readers(self) -> list[R]:
        """Every reader, in creation order."""
        return list(self._readers.values())

    def visits(self, row: Row, old_row: Row | None = None) -> Iterable[R]:
        """The readers that a change of this row can affect, in creation order.

        A generator that searches again if `Route.watch` is called while it is read: where a table is joined with
        itself, pushing the change to the parent side makes the child side watch new keys.
        """
        if len(self._readers) <= self._few:
            return self._all
        return self._walk(row, old_row)

    def _walk(self, row: Row, old_row: Row | None) -> Iterator[R]:
        last = 0
        ended = False
        while not ended:
            ended = True
            ticks = self._ticks()
            affected = self._affected(row, old_row)
            for ordinal in sorted(ordinal for ordinal in affected if ordinal > last):
                yield affected[ordinal]
                last = ordinal
                if self._ticks() != ticks:
                    ended = False
                    break

    def _ticks(self) -> int:
        return sum([clock.ticks for clock in self._clocks])

    def _affected(self, row: Row, old_row: Row | None) -> dict[int, R]:
        affected: dict[int, R] = {}
        for group, _ in self._groups.values():
            for member in group.holders(row):
                affected[member.ordinal] = member.reader
            if old_row is not None:
                for member in group.holders(old_row):
                    affected[member.ordinal] = member.reader
        return affected
