"""Which connections of a source a change must visit.

A source with thousands of connections must not offer every change to all.  `Routes` puts each connection into the group
that tells most about it (see `reader_groups`) and answers with the few that a change can concern, in creation order.
Up to `FEW_READERS` connections the answer is simply all of them, and no index is ever filled.

Leaving a connection out is safe because nothing would have come of the visit: its filter would have dropped the change,
or no limit above it keeps state for the row's key, or the join above it would have found no partner for the row.
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
"""Up to this many connections, asking each is cheaper than looking them up."""


class Reader(Protocol):
    """What routing needs to know of a connection."""

    @property
    def ordinal(self) -> int:
        """Its place in the order of creation."""
        ...

    @property
    def condition(self) -> Condition | None:
        """Its subquery-free filter."""
        ...


R = TypeVar("R", bound=Reader)


class Clock:
    """Counts what was watched on a table, so that a walk in progress notices."""

    __slots__ = ("ticks",)

    def __init__(self) -> None:
        self.ticks = 0


class Place:
    """Where a reader stands in the routes of its table; lasts as long as the reader.

    `tables` are those looked into to find the reader; `clocks` those of the tables where watching changes the answer.
    `under` and `needs` are what the place was found by, to find another in other routes.
    """

    __slots__ = ("clocks", "group", "member", "name", "needs", "routes", "tables", "under")

    def __init__(self, routes: Routes[Any], name: object, group: Group, member: Member) -> None:
        self.under: Under | None = None
        self.needs: list[tuple[Place, Columns, Columns]] = []
        self.routes = routes
        self.name = name
        self.group = group
        self.member = member
        self.tables = frozenset((routes.table.name,))
        self.clocks = frozenset((routes.clock,)) if isinstance(group, WatchedGroup) else frozenset()

    def watch(self, key: Key) -> None:
        """The limit that ends the reader's level begins to keep state for a join key, for good."""
        self.group.watch(self.member, key)
        self.routes.clock.ticks += 1

    def take_over(self, found: Place) -> None:
        """Stand where `found` stands."""
        self.routes, self.name, self.group, self.member = found.routes, found.name, found.group, found.member
        self.tables, self.clocks = found.tables, found.clocks

    def need_again(self) -> None:
        """Say again what the level needs, after the reader was adopted by other routes."""
        needs, self.needs = self.needs, []
        for each in needs:
            self.need(*each)

    def need(self, child: Place, columns: Columns, child_columns: Columns) -> None:
        """Every row of the reader's level must have a row of the child level, joined by these columns."""
        self.needs.append((child, columns, child_columns))
        self.routes.narrow(self, child, columns, child_columns)


@dataclass(frozen=True, slots=True, eq=False)
class Under:
    """How a level hangs on the level above: where that stands, and the columns they are joined by.

    `limited` says that the level ends in a limit kept per join key, which calls `Place.watch`.
    """

    parent: Place
    parent_columns: Columns
    child_columns: Columns
    limited: bool


class Routes(Generic[R]):
    """The readers of one table.

    Invariant: every reader is in exactly one group. `rows_with(columns)` must give a function from join key to the
    table's present rows. Up to `few` readers are not looked up.
    """

    def __init__(self, table: TableSchema, rows_with: Callable[[Columns], Lookup], few: int = FEW_READERS) -> None:
        self.table = table
        self.rows_with = rows_with
        self.clock = Clock()
        self._few = few
        self._clocks: frozenset[Clock] = frozenset()
        self._readers: dict[int, R] = {}
        self._all: list[R] = []
        self._places: dict[int, Place] = {}
        self._groups: dict[object, tuple[Group, set[int]]] = {}

    def enter(self, reader: R, under: Under | None = None) -> Place:
        """Find a reader's place; ordinals must come in ascending order."""
        place = self._find(reader, pins_of(reader.condition, self.table), under)
        place.under = under
        self._enter(reader, place)
        return place

    def adopt(self, reader: R, place: Place) -> None:
        """Let a reader that left other routes enter these, with the place object it has and what was watched there.

        Whoever it hangs on has been adopted before it. What it needs is told again afterwards, by `need_again`.
        """
        keys = place.member.keys
        place.take_over(self._find(reader, place.member.pins, place.under))
        self._enter(reader, place)
        for key in keys:
            place.watch(key)

    def _find(self, reader: R, pins: Pins, under: Under | None) -> Place:
        if under is not None and under.limited:
            return self._watched(reader, pins, under.child_columns)
        if under is not None and under.parent.group.selective:
            return self._linked(reader, pins, under.child_columns, under.parent, under.parent_columns)
        group = self._known(name := ("pinned", pins.columns)) or PinnedGroup(self.table, pins.columns)
        return Place(self, name, group, Member(reader, reader.ordinal, pins, None))

    def _enter(self, reader: R, place: Place) -> None:
        self._readers[reader.ordinal] = reader
        self._list_all()
        self._take_place(place)
        if len(self._readers) > self._few:
            self._begin()

    def narrow(self, place: Place, child: Place, columns: Columns, child_columns: Columns) -> None:
        """Find a reader through the child rows its level needs, if nothing better is known of it.

        Not if the answer would look into this very table: during a change to it, the child side still sees it before.
        """
        if place.group.selective or not child.group.selective or self.table.name in child.tables:
            return
        self._give_up_place(place)
        place.take_over(self._linked(place.member.reader, place.member.pins, columns, child, child_columns))
        self._take_place(place)

    def _watched(self, reader: R, pins: Pins, columns: Columns) -> Place:
        name = ("watched", pins.columns, columns)
        group = self._known(name) or WatchedGroup(self.table, pins.columns, columns)
        return Place(self, name, group, Member(reader, reader.ordinal, pins, None))

    def _linked(self, reader: R, pins: Pins, columns: Columns, other: Place, other_columns: Columns) -> Place:
        name = ("linked", pins.columns, columns, other_columns, id(other.group))
        group = self._known(name) or LinkedGroup(
            self.table, pins.columns, columns, other.group, other.routes.rows_with(other_columns)
        )
        place = Place(self, name, group, Member(reader, reader.ordinal, pins, other.member))
        place.tables |= other.tables
        place.clocks |= other.clocks
        return place

    def _known(self, name: object) -> Group | None:
        known = self._groups.get(name)
        return known[0] if known else None

    def _take_place(self, place: Place) -> None:
        place.group.enter(place.member)
        self._groups.setdefault(place.name, (place.group, set()))[1].add(place.member.ordinal)
        self._places[place.member.ordinal] = place
        self._clocks |= place.clocks

    def _give_up_place(self, place: Place) -> None:
        place.group.leave(place.member)
        ordinals = self._groups[place.name][1]
        ordinals.discard(place.member.ordinal)
        if not ordinals:
            del self._groups[place.name]

    def _begin(self) -> None:
        """Fill the indexes while readers are being added, not while the first change waits."""
        for group, _ in self._groups.values():
            if isinstance(group, WatchedGroup):
                group.begin()

    def leave(self, reader: R) -> bool:
        """Forget a reader; says whether it was known."""
        place = self._places.pop(reader.ordinal, None)
        if place is None:
            return False
        del self._readers[reader.ordinal]
        self._list_all()
        self._give_up_place(place)
        place.member.reader = None  # the reader has the place: both are freed at once
        return True

    def _list_all(self) -> None:
        """Keep the list that `visits` hands out; it is replaced, never changed, so a walk over it stays what it was."""
        self._all = list(self._readers.values()) if len(self._readers) <= self._few else []

    def readers(self) -> list[R]:
        """Every reader, in creation order."""
        return list(self._readers.values())

    def visits(self, row: Row, old_row: Row | None = None) -> Iterable[R]:
        """The readers that a change of this row can concern, in creation order.

        What is watched while the walk is under way counts for the readers still to come: where a table is joined with
        itself, serving the parent side makes the child side begin to watch.
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
            found = self._concerned(row, old_row)
            for ordinal in sorted(ordinal for ordinal in found if ordinal > last):
                yield found[ordinal]
                last = ordinal
                if self._ticks() != ticks:
                    ended = False
                    break

    def _ticks(self) -> int:
        return sum([clock.ticks for clock in self._clocks])

    def _concerned(self, row: Row, old_row: Row | None) -> dict[int, R]:
        found: dict[int, R] = {}
        for group, _ in self._groups.values():
            for member in group.holders(row):
                found[member.ordinal] = member.reader
            if old_row is not None:
                for member in group.holders(old_row):
                    found[member.ordinal] = member.reader
        return found
