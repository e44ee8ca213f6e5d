"""Groups of a table's readers, to look up those that a row can affect without testing each.

`routing` puts the connections of a source into groups; a group answers `holders(row)` from a hash table.  The answer
may have too many readers, never too few:

* **pinned**: the reader's filter fixes columns by `=`, `IS` or `IN`.  A row with other values fails the filter.
* **watched**: the reader feeds a limit that keeps state per join key (Take, Cap).  A key that was never fetched has no
  state, and changes under it are ignored; the operator calls `Route.watch` for each key that gets state.
* **linked**: the reader needs a row of another level and keeps no state: the child side of a join needs a parent, the
  parent side of a flipped EXISTS needs a child.  A row matters if the other table has a row with its key that the other
  level's group holds: one lookup in the other table serves the whole group.

Watched and linked readers are distinguished by their pins, too.  Links follow the nesting of queries and never form a
cycle, so the search ends even if a table is joined with itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol, TypeAlias

from protocol.sync.ast import And, Column, Condition, Literal, Simple
from reference_cache.zql.ordering import KeyOf, join_key
from reference_cache.zql.schema import Row, TableSchema

MOST_PINS = 1_024
"""Index entries per reader; longer IN lists are not indexed."""

Key: TypeAlias = Any
Columns: TypeAlias = tuple[str, ...]
Lookup: TypeAlias = Callable[[Key], Iterable[Row]]


@dataclass(frozen=True, slots=True)
class Pins:
    """The columns that a reader's filter fixes, and the keys of the values that pass it."""

    columns: Columns
    keys: tuple[Key, ...]


NO_PINS = Pins((), ((),))


def pins_of(condition: Condition | None, table: TableSchema) -> Pins:
    """What the members of a filter's top AND fix; columns with too many values are left out."""
    values: dict[str, frozenset[Any]] = {}
    for column, admitted in _fixed(condition, table):
        values[column] = values[column] & admitted if column in values else admitted
    while values and _combinations(values) > MOST_PINS:
        del values[max(values, key=lambda column: len(values[column]))]
    if not values:
        return NO_PINS
    columns = tuple(sorted(values))
    key_of = join_key(columns, table)
    rows = (table.row(dict(zip(columns, chosen, strict=True))) for chosen in product(*(values[c] for c in columns)))
    return Pins(columns, tuple(key_of(row) for row in rows))


def _combinations(values: dict[str, frozenset[Any]]) -> int:
    total = 1
    for admitted in values.values():
        total *= len(admitted)
    return total


def _fixed(condition: Condition | None, table: TableSchema) -> Iterator[tuple[str, frozenset[Any]]]:
    if isinstance(condition, And):
        for member in condition.conditions:
            yield from _fixed(member, table)
        return
    if not isinstance(condition, Simple) or condition.op not in ("=", "IS", "IN"):
        return
    left, right = condition.left, condition.right
    if not isinstance(left, Column) or not isinstance(right, Literal) or right.value is None:
        return
    if table.columns[left.name].type != "json":
        yield left.name, frozenset(right.value if isinstance(right.value, tuple) else (right.value,))


class Member:
    """A reader's entry in a group. In a linked group, `other` is the entry of the level that the reader needs."""

    __slots__ = ("keys", "ordinal", "other", "pins", "reader")

    def __init__(self, reader: Any, ordinal: int, pins: Pins, other: Member | None) -> None:
        # Set to None by `Routes.leave`.
        self.reader = reader
        self.ordinal = ordinal
        self.pins = pins
        self.other = other
        # The join keys watched; `WatchedGroup.watch` appends.
        self.keys: list[Key] = []


Members: TypeAlias = dict[int, Member]
"""By ordinal."""


class Group(Protocol):
    """Readers of one table that are found in the same way; `selective` unless it always returns all of them."""

    @property
    def selective(self) -> bool: ...

    def enter(self, member: Member) -> None:
        """Add a reader."""
        ...

    def leave(self, member: Member) -> None:
        """Remove a reader."""
        ...

    def watch(self, member: Member, key: Key) -> None:
        """The limit above the reader keeps state for a join key from now on."""
        ...

    def holders(self, row: Row) -> Iterable[Member]:
        """Every reader whose pipeline level can contain the row, and perhaps more."""
        ...


class _Table:
    """Members by key. Invariant: no empty entries."""

    __slots__ = ("_members",)

    def __init__(self) -> None:
        # By key, then by ordinal; written by `add` and `discard`.
        self._members: dict[Key, Members] = {}

    def add(self, key: Key, member: Member) -> None:
        self._members.setdefault(key, {})[member.ordinal] = member

    def discard(self, key: Key, member: Member) -> None:
        members = self._members.get(key)
        if members is not None and members.pop(member.ordinal, None) is not None and not members:
            del self._members[key]

    def at(self, key: Key) -> Iterable[Member]:
        return self._members.get(key, _NOBODY).values()


_NOBODY: Members = {}


class PinnedGroup:
    """Readers by the values their filters fix; without columns, all of them."""

    def __init__(self, table: TableSchema, columns: Columns) -> None:
        self.selective = bool(columns)
        self._pin_of = _key_of(columns, table)
        self._members = _Table()

    def enter(self, member: Member) -> None:
        for pin in member.pins.keys:
            self._members.add(pin, member)

    def leave(self, member: Member) -> None:
        for pin in member.pins.keys:
            self._members.discard(pin, member)

    def watch(self, member: Member, key: Key) -> None:
        """Nothing to do: pins are enough to find it."""

    def holders(self, row: Row) -> Iterable[Member]:
        return self._members.at(self._pin_of(row))


class WatchedGroup:
    """Readers by their pins and by the join keys that the limit above them keeps state for.

    The index is empty until `begin`: a table with few readers never uses it.
    """

    selective = True

    def __init__(self, table: TableSchema, columns: Columns, child_columns: Columns) -> None:
        self._pin_of = _key_of(columns, table)
        self._key_of = join_key(child_columns, table)
        self._members = _Table()
        # Members whose keys are not in the index yet; None after `begin`.
        self._waiting: Members | None = {}

    def enter(self, member: Member) -> None:
        if self._waiting is not None:
            self._waiting[member.ordinal] = member

    def watch(self, member: Member, key: Key) -> None:
        member.keys.append(key)
        if self._waiting is None:
            self._enter_key(member, key)

    def leave(self, member: Member) -> None:
        if self._waiting is not None:
            self._waiting.pop(member.ordinal, None)
            return
        for key in member.keys:
            for pin in member.pins.keys:
                self._members.discard((pin, key), member)

    def begin(self) -> None:
        """Enter all watched keys in the index, and from now on every new key immediately."""
        if self._waiting is None:
            return
        for member in self._waiting.values():
            for key in member.keys:
                self._enter_key(member, key)
        self._waiting = None

    def _enter_key(self, member: Member, key: Key) -> None:
        for pin in member.pins.keys:
            self._members.add((pin, key), member)

    def holders(self, row: Row) -> Iterable[Member]:
        if self._waiting is not None:
            self.begin()
        return self._members.at((self._pin_of(row), self._key_of(row)))


class LinkedGroup:
    """Readers by their pins and by the rows of another level that they need.

    `columns` are this table's side of the link; `others` is the other level's group, `other_rows` its table.
    """

    selective = True

    def __init__(
        self, table: TableSchema, pinned: Columns, columns: Columns, others: Group, other_rows: Lookup
    ) -> None:
        self._pin_of = _key_of(pinned, table)
        self._key_of = join_key(columns, table)
        self._others = others
        self._other_rows = other_rows
        self._members = _Table()

    def enter(self, member: Member) -> None:
        for pin in member.pins.keys:
            self._members.add((_other_of(member), pin), member)

    def leave(self, member: Member) -> None:
        for pin in member.pins.keys:
            self._members.discard((_other_of(member), pin), member)

    def watch(self, member: Member, key: Key) -> None:
        """Nothing to do: the other level is enough to find it."""

    def holders(self, row: Row) -> Iterable[Member]:
        key, pin = self._key_of(row), self._pin_of(row)
        if key is None:
            return
        for other_row in self._other_rows(key):
            for other in self._others.holders(other_row):
                yield from self._members.at((other.ordinal, pin))


def _other_of(member: Member) -> int:
    assert member.other is not None, "only readers that need another level are entered here"
    return member.other.ordinal


def _key_of(columns: Columns, table: TableSchema) -> KeyOf:
    return join_key(columns, table) if columns else lambda row: ()
