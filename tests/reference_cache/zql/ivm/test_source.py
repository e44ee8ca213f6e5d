"""One suite over every kind of source: fetching, pushing, filters, and what readers see half-way through a change."""

from typing import Any

import pytest

from protocol.sync.ast import And, Column, Exists, Literal, Or, Ordering, Simple
from protocol.sync.ast_json import parse_condition
from reference_cache.zql.ivm.change import YIELD, Change, add, edit, remove
from reference_cache.zql.ivm.operator import AnyOf, Request, StartPosition, first
from reference_cache.zql.ivm.source import Connection, Source
from reference_cache.zql.ivm.store import SourceError
from reference_cache.zql.schema import Row, schema, table
from tests.reference_cache.zql.ivm.pipelines import BY_ID, ISSUE, PART, SCHEMA, keys, rows_of
from tests.support.workloads.tables import SOURCE_KINDS, SourceKind, Tables
from tests.support.zql.recorder import plain_change

RANKED: Ordering = (("rank", "asc"), ("id", "asc"))
RANKED_DOWN: Ordering = (("rank", "desc"), ("id", "asc"))
ROWS: list[Row] = [("a", "u1", 3), ("b", "u2", None), ("c", "u1", 1), ("d", None, 3), ("e", "u2", 2)]
MANY: list[Row] = [(f"k{number:03}", f"u{number % 7}", number % 10) for number in range(200)]


@pytest.fixture(params=SOURCE_KINDS)
def kind(request: pytest.FixtureRequest) -> SourceKind:
    found: SourceKind = request.param
    return found


def issues(kind: SourceKind, rows: list[Row] = ROWS) -> Source:
    return Tables(SCHEMA, {"issue": rows_of(ISSUE, rows)}, kind).open_source(ISSUE)


def recorded(connection: Connection) -> list[Any]:
    log: list[Any] = []
    connection.set_output(lambda change: log.append(plain_change(change)))
    return log


def is_(column: str, op: Any, value: Any) -> Simple:
    return Simple(op, Column(column), Literal(value))


# Fetching


def test_rows_come_in_the_connection_s_order(kind: SourceKind) -> None:
    source = issues(kind)
    assert keys(source.connect(BY_ID)) == ["a", "b", "c", "d", "e"]
    assert keys(source.connect(RANKED)) == ["b", "c", "e", "a", "d"]
    assert keys(source.connect(RANKED_DOWN)) == ["a", "d", "e", "c", "b"]


def test_reverse_walks_the_same_order_backwards(kind: SourceKind) -> None:
    assert keys(issues(kind).connect(RANKED), Request(reverse=True)) == ["d", "a", "e", "c", "b"]


def test_a_constraint_selects_equal_rows_in_order(kind: SourceKind) -> None:
    assert keys(issues(kind).connect(RANKED), Request(("owner",), "u1")) == ["c", "a"]


def test_a_constraint_without_a_match_gives_nothing(kind: SourceKind) -> None:
    assert keys(issues(kind).connect(RANKED), Request(("owner",), "nobody")) == []


def test_a_null_constraint_matches_nothing_not_even_null(kind: SourceKind) -> None:
    assert keys(issues(kind).connect(BY_ID), Request(("owner",), None)) == []


def test_a_constraint_of_another_type_matches_nothing(kind: SourceKind) -> None:
    assert keys(issues(kind).connect(BY_ID), Request(("rank",), "3")) == []


def test_a_compound_constraint_needs_all_columns(kind: SourceKind) -> None:
    assert keys(issues(kind).connect(BY_ID), Request(("owner", "rank"), ("u1", 3))) == ["a"]


def test_a_key_constraint_finds_the_row_if_it_passes_the_filter(kind: SourceKind) -> None:
    source = issues(kind)
    assert keys(source.connect(BY_ID), Request(("id",), "c")) == ["c"]
    assert keys(source.connect(BY_ID, is_("rank", ">", 1)), Request(("id",), "c")) == []


@pytest.mark.parametrize("size", ["few", "many"])
def test_any_of_is_an_in_list_in_order(kind: SourceKind, size: str) -> None:
    connection = issues(kind, ROWS if size == "few" else [*ROWS, *MANY]).connect(RANKED)
    assert keys(connection, Request(any_of=(AnyOf(("id",), ["e", "a", "b", "zz"]),))) == ["b", "e", "a"]
    assert keys(connection, Request(any_of=(AnyOf(("id",), ["e", "a", "b"]),), reverse=True)) == ["a", "e", "b"]


def test_several_any_of_lists_and_a_constraint_all_hold(kind: SourceKind) -> None:
    connection = issues(kind).connect(BY_ID)
    both = (AnyOf(("id",), ["a", "b", "c"]), AnyOf(("rank",), [3, 1]))
    assert keys(connection, Request(any_of=both)) == ["a", "c"]
    assert keys(connection, Request(("owner",), "u1", both, StartPosition(("b", None, None), inclusive=True))) == ["c"]


def test_any_of_over_several_columns_compares_them_together(kind: SourceKind) -> None:
    pairs = AnyOf(("owner", "rank"), [("u1", 3), ("u2", 2), ("u1", 9)])
    assert keys(issues(kind).connect(BY_ID), Request(any_of=(pairs,))) == ["a", "e"]


def test_an_empty_any_of_gives_nothing(kind: SourceKind) -> None:
    assert keys(issues(kind).connect(BY_ID), Request(any_of=(AnyOf(("id",), []),))) == []


def test_any_of_on_a_boolean_column_keeps_true_apart_from_one(kind: SourceKind) -> None:
    users = Tables(SCHEMA, {"user": [{"id": "x", "active": True}, {"id": "y", "active": False}]}, kind)
    connection = users.open_source(SCHEMA.tables["user"]).connect(BY_ID)
    assert keys(connection, Request(any_of=(AnyOf(("active",), [("boolean", True)]),))) == ["x"]
    assert keys(connection, Request(("active",), ("boolean", False))) == ["y"]
    assert keys(connection, Request(("active",), 1)) == []


STARTS = [
    (RANKED, ("e", None, 2), True, False, ["e", "a", "d"]),
    (RANKED, ("e", None, 2), False, False, ["a", "d"]),
    (RANKED, ("e", None, 2), True, True, ["e", "c", "b"]),
    (RANKED, ("e", None, 2), False, True, ["c", "b"]),
    (RANKED, ("aa", None, 3), True, False, ["d"]),
    (RANKED, ("b", None, None), False, False, ["c", "e", "a", "d"]),
    (RANKED, ("b", None, None), False, True, []),
    (RANKED_DOWN, ("e", None, 2), False, False, ["c", "b"]),
    (RANKED_DOWN, ("c", None, 1), False, True, ["e", "d", "a"]),
    (RANKED_DOWN, ("b", None, None), False, False, []),
    (RANKED_DOWN, ("b", None, None), False, True, ["c", "e", "d", "a"]),
    (RANKED, (None, None, 3), True, False, ["a", "d"]),
    (RANKED, (None, None, 3), False, True, ["e", "c", "b"]),
    (BY_ID, (None, None, None), False, False, ["a", "b", "c", "d", "e"]),
]


@pytest.mark.parametrize("padding", [0, 200])
@pytest.mark.parametrize(("ordering", "row", "inclusive", "reverse", "expected"), STARTS)
def test_start_begins_at_or_after_a_position(
    kind: SourceKind, ordering: Any, row: Row, inclusive: bool, reverse: bool, expected: list[str], padding: int
) -> None:
    connection = issues(kind, [*ROWS, *MANY[:padding]]).connect(ordering)
    found = keys(connection, Request(start=StartPosition(row, inclusive=inclusive), reverse=reverse))
    assert [key for key in found if not key.startswith("k")] == expected


def test_start_in_mixed_directions_over_a_compound_key(kind: SourceKind) -> None:
    rows = [{"a": a, "b": b, "size": None} for a in (1, 2) for b in ("x", "y")]
    source = Tables(SCHEMA, {"part": rows}, kind).open_source(PART)
    connection = source.connect((("b", "desc"), ("a", "asc")))
    found = [node.row[:2] for node in connection.fetch(Request(start=StartPosition((2, "y", None), inclusive=False)))]  # type: ignore[union-attr]
    assert found == [(1, "x"), (2, "x")]


def test_a_large_stream_may_be_left_early(kind: SourceKind) -> None:
    connection = issues(kind, MANY).connect(BY_ID)
    node = first(connection.fetch(Request()))
    assert node is not None
    assert node.row == MANY[0]
    assert len(keys(connection)) == len(MANY)


def test_the_marker_comes_when_the_time_slice_is_used_up(kind: SourceKind) -> None:
    tables = Tables(SCHEMA, {"issue": rows_of(ISSUE, MANY)}, kind, expired=lambda: True)
    stream = list(tables.open_source(ISSUE).connect(BY_ID).fetch(Request()))
    assert stream[0] is YIELD
    assert stream.count(YIELD) > 2
    assert len(stream) - stream.count(YIELD) == len(MANY)


def test_json_columns_join_by_scalar_values(kind: SourceKind) -> None:
    stored = table("note", {"id": "string", "data": "json?", "tag": "string"})
    rows = [("a", "x", "t"), ("b", {"q": 1}, "t"), ("c", True, "t"), ("d", 1, "t"), ("e", None, "t"), ("f", "x", "u")]
    notes = schema([stored], {})
    connection = Tables(notes, {"note": rows_of(stored, rows)}, kind).open_source(stored).connect(BY_ID)
    assert keys(connection, Request(("data",), "x")) == ["a", "f"]
    assert keys(connection, Request(("data",), 1)) == ["d"]
    assert keys(connection, Request(("data",), ("boolean", True))) == ["c"]
    assert keys(connection, Request(("data", "tag"), ("x", "u"))) == ["f"]
    some = (AnyOf(("data",), ["x", 1]), AnyOf(("tag",), ["t"]))
    assert keys(connection, Request(any_of=some, reverse=True)) == ["d", "a"]


# Filters


def test_a_filter_without_subqueries_is_fully_applied(kind: SourceKind) -> None:
    connection = issues(kind).connect(BY_ID, And((is_("owner", "=", "u1"), is_("rank", ">", 1))))
    assert connection.fully_applied
    assert keys(connection) == ["a"]


@pytest.mark.parametrize(
    ("op", "value", "expected"),
    [
        ("=", 3, ["a", "d"]),
        ("!=", 3, ["c", "e"]),
        ("IS", None, ["b"]),
        ("IS NOT", None, ["a", "c", "d", "e"]),
        ("IS NOT", 3, ["b", "c", "e"]),
        ("IN", (1, 2), ["c", "e"]),
        ("NOT IN", (1, 2), ["a", "d"]),
        ("NOT IN", (), ["a", "c", "d", "e"]),
        ("IN", (), []),
        ("=", None, []),
        ("=", "3", []),
        ("<", 3, ["c", "e"]),
    ],
)
def test_sources_judge_conditions_alike(kind: SourceKind, op: Any, value: Any, expected: list[str]) -> None:
    assert keys(issues(kind).connect(BY_ID, is_("rank", op, value))) == expected


def test_like_and_constants_are_applied_too(kind: SourceKind) -> None:
    source = issues(kind)
    assert keys(source.connect(BY_ID, And((is_("owner", "LIKE", "u%"), is_("rank", "=", 3))))) == ["a"]
    assert keys(source.connect(BY_ID, is_("owner", "ILIKE", "U_"))) == ["a", "b", "c", "e"]
    assert keys(source.connect(BY_ID, Simple("=", Literal(1), Literal(2)))) == []
    assert keys(source.connect(BY_ID, Or(()))) == []
    assert len(keys(source.connect(BY_ID, And(())))) == 5


def test_exists_is_left_out_of_the_filter(kind: SourceKind) -> None:
    exists = parse_condition(
        {
            "type": "correlatedSubquery",
            "op": "EXISTS",
            "related": {
                "correlation": {"parentField": ["id"], "childField": ["issue"]},
                "subquery": {"table": "comment", "alias": "comments"},
            },
        }
    )
    assert isinstance(exists, Exists)
    source = issues(kind)
    weaker = source.connect(BY_ID, And((is_("owner", "=", "u1"), exists)))
    gone = source.connect(BY_ID, Or((is_("owner", "=", "u1"), exists)))
    assert (weaker.fully_applied, keys(weaker)) == (False, ["a", "c"])
    assert (gone.fully_applied, len(keys(gone))) == (False, 5)


# Pushing


def test_changes_arrive_and_are_stored(kind: SourceKind) -> None:
    source = issues(kind)
    connection = source.connect(RANKED)
    log = recorded(connection)
    source.push(add(("f", None, 0)))
    source.push(remove(("c", "u1", 1)))
    source.push(edit(("a", "u1", 9), ("a", "u1", 3)))
    assert log == [
        ("add", ("f", None, 0)),
        ("remove", ("c", "u1", 1)),
        ("edit", ("a", "u1", 9), ("a", "u1", 3)),
    ]
    assert keys(connection) == ["b", "f", "e", "d", "a"]
    assert keys(connection, Request(("owner",), "u1")) == ["a"]
    assert keys(connection, Request(("id",), "c")) == []


@pytest.mark.parametrize("checking", ["memory", "sqlite"])
def test_contradictions_are_refused_and_change_nothing(checking: SourceKind) -> None:
    source = issues(checking)
    connection = source.connect(BY_ID)
    log = recorded(connection)
    for wrong in (add(("a", None, 1)), remove(("zz", None, 1)), edit(("zz", None, 1), ("zz", None, 2))):
        with pytest.raises(SourceError, match="issue"):
            source.push(wrong)
    with pytest.raises(SourceError, match="already"):
        source.push(edit(("b", None, 1), ("a", "u1", 3)))
    assert (log, keys(connection)) == ([], ["a", "b", "c", "d", "e"])


def test_an_edit_may_change_the_key(kind: SourceKind) -> None:
    source = issues(kind)
    connection = source.connect(BY_ID)
    log = recorded(connection)
    source.push(edit(("x", "u1", 3), ("a", "u1", 3)))
    assert log == [("edit", ("x", "u1", 3), ("a", "u1", 3))]
    assert keys(connection) == ["b", "c", "d", "e", "x"]


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        (3, 3, "edit"),
        (1, 3, "remove"),
        (3, 1, "add"),
        (1, 0, None),
    ],
)
def test_an_edit_across_the_filter_becomes_an_add_or_a_remove(
    kind: SourceKind, new: int, old: int, expected: str | None
) -> None:
    source = issues(kind, [("a", "u1", old)])
    log = recorded(source.connect(BY_ID, is_("rank", ">", 2)))
    source.push(edit(("a", "u2", new), ("a", "u1", old)))
    assert [message[0] for message in log] == ([expected] if expected else [])


def test_an_edit_of_a_split_column_is_a_remove_and_an_add_for_everyone(kind: SourceKind) -> None:
    source = issues(kind)
    plain = source.connect(BY_ID)
    splitting = source.connect(BY_ID, None, ["owner"])
    log = recorded(plain)
    recorded(splitting)
    source.push(edit(("a", "u9", 3), ("a", "u1", 3)))
    source.push(edit(("a", "u9", 4), ("a", "u9", 3)))
    splitting.destroy()
    source.push(edit(("a", "u1", 4), ("a", "u9", 4)))
    assert [message[0] for message in log] == ["remove", "add", "edit", "edit"]


def test_a_null_in_a_split_column_always_splits(kind: SourceKind) -> None:
    source = issues(kind)
    log = recorded(source.connect(BY_ID, None, ["owner"]))
    source.push(edit(("d", None, 5), ("d", None, 3)))
    assert [message[0] for message in log] == ["remove", "add"]


def test_orderings_must_be_total_and_sortable(kind: SourceKind) -> None:
    with pytest.raises(SourceError, match="primary-key"):
        issues(kind).connect((("rank", "asc"),))


# Before or after


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (add(("bb", None, 2)), ["a", "b", "c", "d", "e"], ["a", "b", "bb", "c", "d", "e"]),
        (remove(("c", "u1", 1)), ["a", "b", "c", "d", "e"], ["a", "b", "d", "e"]),
        (edit(("c", "u5", 1), ("c", "u1", 1)), ["a", "b", "c", "d", "e"], ["a", "b", "c", "d", "e"]),
        (edit(("zz", "u1", 1), ("c", "u1", 1)), ["a", "b", "c", "d", "e"], ["a", "b", "d", "e", "zz"]),
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_readers_see_a_change_from_their_turn_on(
    kind: SourceKind, change: Any, before: list[str], after: list[str], reverse: bool
) -> None:
    source = issues(kind)
    readers = [source.connect(BY_ID) for _ in range(2)]
    seen: list[list[Any]] = []
    request = Request(reverse=reverse)

    def look(_: Change) -> None:
        seen.append([keys(reader, request)[:: -1 if reverse else 1] for reader in readers])

    for reader in readers:
        reader.set_output(look)
    source.push(change)
    assert seen == [[after, before], [after, after]]


def test_the_state_before_respects_filter_constraint_and_start(kind: SourceKind) -> None:
    source = issues(kind)
    early, late = source.connect(BY_ID), source.connect(BY_ID, is_("rank", ">", 0))
    recorded(late)
    seen: list[list[Any]] = []
    requests = [
        Request(("owner",), "u1"),
        Request(("owner",), "u9"),
        Request(start=StartPosition(("c", None, None), inclusive=True)),
        Request(start=StartPosition(("c", None, None), inclusive=False)),
        Request(any_of=(AnyOf(("id",), ["c", "e"]),)),
    ]
    early.set_output(lambda change: seen.extend(keys(late, request) for request in requests))
    source.push(edit(("c", "u9", 0), ("c", "u1", 1)))
    assert seen == [["a", "c"], [], ["c", "d", "e"], ["d", "e"], ["c", "e"]]
    assert [keys(late, request) for request in requests] == [["a"], [], ["d", "e"], ["d", "e"], ["e"]]


def test_unordered_readers_are_shown_the_state_before_too(kind: SourceKind) -> None:
    source = issues(kind)
    early, late = source.connect(BY_ID), source.connect(None)
    recorded(late)
    seen: list[set[Any]] = []
    early.set_output(lambda change: seen.append({node.row for node in late.fetch(Request())}))  # type: ignore[union-attr]
    source.push(edit(("c", "u9", 0), ("c", "u1", 1)))
    assert seen == [set(ROWS)]


def test_a_reader_that_left_gets_no_changes(kind: SourceKind) -> None:
    source = issues(kind)
    connection = source.connect(BY_ID)
    log = recorded(connection)
    connection.destroy()
    connection.destroy()
    source.push(remove(ROWS[0]))
    assert log == []
    assert list(source.connections) == []
