from functools import cmp_to_key, partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from protocol.sync.ast import Ordering
from protocol.sync.ast_json import parse
from reference_cache.zql.ordering import (
    Descending,
    complete,
    complete_query,
    is_total,
    join_key,
    sort_key,
)
from reference_cache.zql.schema import TableSchema, table
from reference_cache.zql.values import compare
from tests.reference_cache.zql.official import SCHEMA
from tests.reference_cache.zql.typed_tables import THING, rows

orderings: st.SearchStrategy[Ordering] = st.lists(
    st.tuples(st.sampled_from(["id", "s", "n", "b", "m"]), st.sampled_from(["asc", "desc"])), max_size=4
).map(tuple)  # type: ignore[arg-type]


def naive_compare(ordering: Ordering, thing: TableSchema, a: Any, b: Any) -> int:
    for column, direction in ordering:
        sign = compare(a[thing.index[column]], b[thing.index[column]])
        if sign:
            return sign if direction == "asc" else -sign
    return 0


def test_missing_key_columns_are_appended_ascending_in_key_order() -> None:
    assert complete((), ["a", "b"]) == (("a", "asc"), ("b", "asc"))
    assert complete((("b", "desc"), ("x", "asc")), ["a", "b"]) == (("b", "desc"), ("x", "asc"), ("a", "asc"))
    assert complete((("a", "desc"),), ["a"]) == (("a", "desc"),)


def test_an_ordering_is_total_once_it_names_the_key() -> None:
    assert is_total((("s", "asc"), ("id", "desc")), THING)
    assert not is_total((("s", "asc"),), THING)


def test_every_level_of_a_query_is_completed() -> None:
    hop = {"parentField": ["id"], "childField": ["issueId"]}
    labels = {"table": "issueLabel", "alias": "labels"}
    exists = {"type": "correlatedSubquery", "op": "EXISTS", "related": {"correlation": hop, "subquery": labels}}
    query = complete_query(
        parse(
            {
                "table": "issue",
                "where": {"type": "or", "conditions": [exists]},
                "related": [
                    {"correlation": hop, "subquery": {"table": "comment", "alias": "c", "orderBy": [["at", "desc"]]}}
                ],
            }
        ),
        SCHEMA,
    )
    assert query.order_by == (("id", "asc"),)
    assert query.related[0].subquery.order_by == (("at", "desc"), ("id", "asc"))
    inner = query.where.conditions[0].related.subquery  # type: ignore[union-attr]
    assert inner.order_by == (("issueId", "asc"), ("labelId", "asc"))


@given(orderings, st.lists(rows(), max_size=8))
def test_sorting_by_key_follows_the_definition(ordering: Ordering, given_rows: list[Any]) -> None:
    by_key = sorted(given_rows, key=sort_key(ordering, THING)) if ordering else given_rows
    assert by_key == sorted(given_rows, key=cmp_to_key(partial(naive_compare, ordering, THING)))


def test_nulls_come_first_ascending_and_last_descending() -> None:
    null, value = ("a", None, None, None, None, None), ("b", "x", 1, True, None, 2)
    assert sorted([value, null], key=sort_key((("n", "asc"),), THING)) == [null, value]
    assert sorted([null, value], key=sort_key((("n", "desc"),), THING)) == [value, null]
    assert sorted([value, null], key=sort_key((("s", "desc"),), THING)) == [value, null]


def test_join_keys_are_equal_exactly_when_the_columns_join() -> None:
    flags = table("f", {"id": "boolean", "n": "number?", "j": "json?"})
    number, boolean, json = join_key(["n"], flags), join_key(["id"], flags), join_key(["j"], flags)
    assert number((True, 1, None)) == number((False, 1.0, None))
    assert boolean((True, 1, None)) != number((True, 1, None))
    assert json((True, 1, True)) == boolean((True, 1, None))
    assert json((True, 1, 1)) == number((True, 1, None))
    assert json((True, 1, {"a": 1})) is None


def test_a_null_makes_the_whole_join_key_none() -> None:
    row = ("a", "x", None, True, None, 2)
    assert join_key(["n"], THING)(row) is None
    assert join_key(["s", "n"], THING)(row) is None
    assert join_key(["s", "b"], THING)(("a", None, 1, True, None, 2)) is None
    assert join_key(["s", "m"], THING)(row) == ("x", 2)
    assert join_key(["s", "b"], THING)(row) == ("x", ("boolean", True))


def test_descending_values_are_equal_and_hashable_as_the_values_are() -> None:
    assert Descending("a") == Descending("a")
    assert Descending("b") < Descending("a")
    assert len({Descending("a"), Descending("a")}) == 1
