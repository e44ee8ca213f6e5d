"""Which connections of a source a change must visit.

A source with thousands of connections must not offer every change to all.  `Routes` puts each connection into the group
that tells most about it (see `reader_groups`) and answers with the few that a change can concern, in creation order.
Up to `FEW_READERS` connections the answer is simply all of them, and no index is ever filled.

Leaving a connection out is safe because nothing would have come of the visit: its filter would have dropped the change,
or no limit above it keeps state for the row's key, or the join above it would have found no parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from protocol.sync.ast import Condition
from reference_cache.ivm.reader_groups import (
    Columns,
    Group,
    JoinedGroup,
    Key,
    Lookup,
    Member,
    PinnedGroup,
    Pins,
    WatchedGroup,
    pins_of,
)
from reference_cache.query.schema import Row, TableSchema

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

    `clocks` are those of the tables where watching can change who is found through this place.
    """

    __slots__ = ("_clock", "clocks", "group", "member", "name", "rows_with")

    def __init__(
        self,
        name: object,
        group: Group,
        member: Member,
        rows_with: Callable[[Columns], Lookup],
        clock: Clock,
        clocks: frozenset[Clock],
    ) -> None:
        self.name = name
        self.group = group
        self.member = member
        self.rows_with = rows_with
        self.clocks = clocks
        self._clock = clock

    def watch(self, key: Key) -> None:
        """The limit that ends the reader's level begins to keep state for a join key, for good."""
        self.group.watch(self.member, key)
        self._clock.ticks += 1


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
        self._table = table
        self._rows_with = rows_with
        self._few = few
        self._clock = Clock()
        self._clocks: frozenset[Clock] = frozenset()
        self._readers: dict[int, R] = {}
        self._places: dict[int, Place] = {}
        self._groups: dict[object, tuple[Group, set[int]]] = {}

    def enter(self, reader: R, under: Under | None = None) -> Place:
        """Find a reader's place; ordinals must come in ascending order."""
        pins = pins_of(reader.condition, self._table)
        name, group = self._group(pins, under)
        member = Member(reader, reader.ordinal, pins, under.parent.member if under else None)
        group.enter(member)
        clocks = self._clocks_of(group, under)
        self._clocks |= clocks
        place = Place(name, group, member, self._rows_with, self._clock, clocks)
        self._groups.setdefault(name, (group, set()))[1].add(reader.ordinal)
        self._readers[reader.ordinal] = reader
        self._places[reader.ordinal] = place
        if len(self._readers) > self._few:
            self._begin()
        return place

    def _begin(self) -> None:
        """Fill the indexes while readers are being added, not while the first change waits."""
        for group, _ in self._groups.values():
            if isinstance(group, WatchedGroup):
                group.begin()

    def _clocks_of(self, group: Group, under: Under | None) -> frozenset[Clock]:
        if isinstance(group, JoinedGroup) and under is not None:
            return under.parent.clocks
        return frozenset((self._clock,)) if isinstance(group, WatchedGroup) else frozenset()

    def leave(self, reader: R) -> bool:
        """Forget a reader; says whether it was known."""
        place = self._places.pop(reader.ordinal, None)
        if place is None:
            return False
        del self._readers[reader.ordinal]
        place.group.leave(place.member)
        ordinals = self._groups[place.name][1]
        ordinals.discard(reader.ordinal)
        if not ordinals:
            del self._groups[place.name]
        return True

    def readers(self) -> list[R]:
        """Every reader, in creation order."""
        return list(self._readers.values())

    def visits(self, row: Row, old_row: Row | None = None) -> Iterable[R]:
        """The readers that a change of this row can concern, in creation order.

        What is watched while the walk is under way counts for the readers still to come: where a table is joined with
        itself, serving the parent side makes the child side begin to watch.
        """
        if len(self._readers) <= self._few:
            return list(self._readers.values())
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

    def _group(self, pins: Pins, under: Under | None) -> tuple[object, Group]:
        """The group for such a reader, made if it is the first; its name tells it from every other."""
        if under is not None and under.limited:
            name: tuple[object, ...] = ("watched", pins.columns, under.child_columns)
            known = self._groups.get(name)
            return name, known[0] if known else WatchedGroup(self._table, pins.columns, under.child_columns)
        if under is not None and under.parent.group.selective:
            parents = under.parent.group
            name = ("joined", pins.columns, under.child_columns, under.parent_columns, id(parents))
            known = self._groups.get(name)
            return name, known[0] if known else self._joined(pins, under, parents)
        name = ("pinned", pins.columns)
        known = self._groups.get(name)
        return name, known[0] if known else PinnedGroup(self._table, pins.columns)

    def _joined(self, pins: Pins, under: Under, parents: Group) -> JoinedGroup:
        parent_rows = under.parent.rows_with(under.parent_columns)
        return JoinedGroup(self._table, pins.columns, under.child_columns, parents, parent_rows)
