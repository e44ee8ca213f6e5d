"""Finding the readers that a row can concern."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from protocol.sync.ast import And, Column, Condition, Literal, Or, Simple
from reference_cache.zql.ivm.reader_groups import MOST_PINS, Columns, Lookup, pins_of
from reference_cache.zql.ivm.routing import Routes, Under
from reference_cache.zql.ordering import join_key
from reference_cache.zql.schema import Row, TableSchema, table

ISSUE = table("issue", {"id": "number", "owner": "string?", "open": "boolean"})
COMMENT = table("comment", {"id": "number", "issue": "number?", "author": "string"})


@dataclass(frozen=True)
class Reading:
    ordinal: int
    condition: Condition | None


def equals(column: str, value: Any) -> Simple:
    return Simple("=", Column(column), Literal(value))


class TableRoutes(Routes[Reading]):
    """Routes over a fixed set of rows, with readers made on the fly."""

    def __init__(self, schema: TableSchema, rows: Iterable[Row] = (), few: int = 0) -> None:
        self.rows = list(rows)
        self._schema = schema
        super().__init__(schema, self._lookup, few)

    def _lookup(self, columns: Columns) -> Lookup:
        key_of = join_key(columns, self._schema)
        return lambda key: [row for row in self.rows if key_of(row) == key]

    def read(self, condition: Condition | None = None, under: Under | None = None) -> Any:
        ordinal = max(self._readers, default=0) + 1
        return self.enter(Reading(ordinal, condition), under)

    def ordinals(self, row: Row, old_row: Row | None = None) -> list[int]:
        return [reader.ordinal for reader in self.visits(row, old_row)]


def test_a_few_readers_are_all_visited() -> None:
    issues = TableRoutes(ISSUE, few=2)
    issues.read(equals("owner", "ann"))
    issues.read(equals("owner", "bob"))
    assert issues.ordinals((1, "ann", True)) == [1, 2]


def test_only_readers_with_the_rows_value_are_visited_in_creation_order() -> None:
    issues = TableRoutes(ISSUE)
    issues.read(equals("owner", "ann"))
    issues.read()
    issues.read(equals("owner", "bob"))
    issues.read(And((equals("owner", "ann"), equals("open", True))))
    assert issues.ordinals((1, "ann", True)) == [1, 2, 4]
    assert issues.ordinals((1, "ann", False)) == [1, 2]
    assert issues.ordinals((1, None, True)) == [2]


def test_an_edit_visits_readers_of_both_values() -> None:
    issues = TableRoutes(ISSUE)
    issues.read(equals("owner", "bob"))
    issues.read(equals("owner", "ann"))
    assert issues.ordinals((1, "ann", True), (1, "bob", True)) == [1, 2]


def test_a_reader_that_left_is_not_visited() -> None:
    issues = TableRoutes(ISSUE)
    route = issues.read(equals("owner", "ann"))
    issues.read(equals("owner", "ann"))
    issues.leave(route.member.reader)
    assert issues.ordinals((1, "ann", True)) == [2]


def test_an_in_list_admits_each_of_its_values() -> None:
    issues = TableRoutes(ISSUE)
    issues.read(Simple("IN", Column("owner"), Literal(("ann", "bob"))))
    assert issues.ordinals((1, "bob", True)) == [1]
    assert issues.ordinals((1, "cy", True)) == []


def test_an_or_pins_nothing() -> None:
    assert pins_of(Or((equals("owner", "ann"), equals("open", True))), ISSUE).columns == ()


def test_a_list_too_wide_to_index_is_left_out() -> None:
    wide = Simple("IN", Column("id"), Literal(tuple(range(MOST_PINS + 1))))
    assert pins_of(And((wide, equals("owner", "ann"))), ISSUE).columns == ("owner",)


def test_contradicting_pins_admit_no_row() -> None:
    issues = TableRoutes(ISSUE)
    issues.read(And((equals("owner", "ann"), equals("owner", "bob"))))
    assert issues.ordinals((1, "ann", True)) == []


def test_a_child_reader_is_visited_if_a_parent_row_is_in_its_parents_reach() -> None:
    issues = TableRoutes(ISSUE, [(1, "ann", True), (2, "bob", True)])
    comments = TableRoutes(COMMENT)
    for owner in ("ann", "bob"):
        parent = issues.read(equals("owner", owner))
        comments.read(None, Under(parent, ("id",), ("issue",), limited=False))
    assert comments.ordinals((9, 1, "x")) == [1]
    assert comments.ordinals((9, 2, "x")) == [2]
    assert comments.ordinals((9, 1, "x"), (9, 2, "x")) == [1, 2]
    assert comments.ordinals((9, 3, "x")) == []
    assert comments.ordinals((9, None, "x")) == []


def test_a_child_of_a_parent_without_pins_is_always_visited() -> None:
    issues = TableRoutes(ISSUE)
    comments = TableRoutes(COMMENT)
    comments.read(None, Under(issues.read(), ("id",), ("issue",), limited=False))
    assert comments.ordinals((9, 3, "x")) == [1]


def test_a_grandchild_is_found_through_two_joins() -> None:
    issues = TableRoutes(ISSUE, [(1, "ann", True), (2, "bob", True)])
    comments = TableRoutes(COMMENT, [(9, 1, "x"), (8, 2, "x")])
    replies = TableRoutes(COMMENT)
    for owner in ("ann", "bob"):
        level = comments.read(None, Under(issues.read(equals("owner", owner)), ("id",), ("issue",), limited=False))
        replies.read(None, Under(level, ("id",), ("issue",), limited=False))
    assert replies.ordinals((100, 9, "x")) == [1]
    assert replies.ordinals((100, 8, "x")) == [2]


def test_a_limited_child_is_visited_for_the_keys_it_watches() -> None:
    issues = TableRoutes(ISSUE)
    comments = TableRoutes(COMMENT)
    first, second = (comments.read(None, Under(issues.read(), ("id",), ("issue",), limited=True)) for _ in range(2))
    first.watch(1)
    second.watch(2)
    assert comments.ordinals((9, 1, "x")) == [1]
    second.watch(1)
    assert comments.ordinals((9, 1, "x")) == [1, 2]
    comments.leave(first.member.reader)
    assert comments.ordinals((9, 1, "x")) == [2]


def test_watched_readers_are_distinguished_by_their_pins_too() -> None:
    issues = TableRoutes(ISSUE)
    comments = TableRoutes(COMMENT)
    for author in ("ann", "bob"):
        route = comments.read(equals("author", author), Under(issues.read(), ("id",), ("issue",), limited=True))
        route.watch(1)
    assert comments.ordinals((9, 1, "bob")) == [2]


def test_a_table_joined_with_itself_does_not_recurse_without_end() -> None:
    comments = TableRoutes(COMMENT, [(1, 1, "ann")])
    parent = comments.read(equals("author", "ann"))
    comments.read(None, Under(parent, ("id",), ("issue",), limited=False))
    assert comments.ordinals((1, 1, "ann")) == [1, 2]


def test_a_reader_that_begins_to_watch_during_the_walk_is_still_visited() -> None:
    comments = TableRoutes(COMMENT)
    parent = comments.read()
    child = comments.read(None, Under(parent, ("id",), ("issue",), limited=True))
    walk = iter(comments.visits((9, 1, "x")))
    assert next(walk).ordinal == 1
    child.watch(1)
    assert [reader.ordinal for reader in walk] == [2]


def test_watching_on_a_table_between_is_noticed_too() -> None:
    issues = TableRoutes(ISSUE)
    comments = TableRoutes(COMMENT, [(9, 1, "x")])
    root = issues.read()
    level = comments.read(None, Under(root, ("id",), ("issue",), limited=True))
    issues.read(None, Under(level, ("id",), ("id",), limited=False))
    walk = iter(issues.visits((9, "ann", True)))
    assert next(walk).ordinal == 1
    level.watch(1)
    assert [reader.ordinal for reader in walk] == [2]


def test_a_level_that_needs_children_is_found_through_them() -> None:
    issues = TableRoutes(ISSUE)
    comments = TableRoutes(COMMENT, [(9, 1, "ann"), (8, 2, "bob")])
    for author in ("ann", "bob"):
        level = issues.read()
        child = comments.read(equals("author", author), Under(level, ("id",), ("issue",), limited=False))
        level.need(child, ("id",), ("issue",))
    assert issues.ordinals((1, "x", True)) == [1]
    assert issues.ordinals((2, "x", True)) == [2]
    assert issues.ordinals((3, "x", True)) == []


def test_a_level_that_needs_children_of_its_own_table_is_always_visited() -> None:
    comments = TableRoutes(COMMENT)
    level = comments.read()
    child = comments.read(equals("author", "ann"), Under(level, ("id",), ("issue",), limited=False))
    level.need(child, ("id",), ("issue",))
    assert comments.ordinals((5, 1, "bob")) == [1]


def test_a_level_found_by_its_own_pins_stays_where_it_is() -> None:
    issues, comments = TableRoutes(ISSUE), TableRoutes(COMMENT)
    level = issues.read(equals("owner", "ann"))
    child = comments.read(equals("author", "ann"), Under(level, ("id",), ("issue",), limited=False))
    level.need(child, ("id",), ("issue",))
    assert issues.ordinals((1, "ann", True)) == [1]
