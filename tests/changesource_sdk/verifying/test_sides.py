"""Rows of two stages: compared by what they mean, told apart by key and column."""

from __future__ import annotations

import random

from changesource_sdk.verifying.sides import Rows, Side, canonical_key, canonical_row, compare, digest


def rows(*given: dict[str, object], documents: tuple[str, ...] = ()) -> Rows:
    canonical = [canonical_row(row, documents) for row in given]
    return {canonical_key(row, ["id"]): row for row in canonical}


def side(name: str, **tables: Rows) -> Side:
    return Side(name, "07", tables)


def test_a_digest_does_not_depend_on_the_order_of_rows_or_columns() -> None:
    given = [{"id": number, "name": f"n{number}"} for number in range(50)]
    shuffled = [dict(reversed(row.items())) for row in given]
    random.Random(7).shuffle(shuffled)
    assert digest(rows(*given)) == digest(rows(*shuffled))
    assert digest(rows(*given)) != digest(rows(*given[1:]))
    assert digest(rows(*given)) != digest(rows({"id": 0, "name": "other"}, *given[1:]))


def test_what_replicas_spell_differently_is_the_same() -> None:
    log = rows(
        {"id": 1, "open": True, "share": 2.0, "note": '{"b": 1, "a": [true]}', "gone": None}, documents=("note",)
    )
    replica = rows({"id": 1, "open": 1, "share": 2, "note": '{"a":[true],"b":1}'}, documents=("note",))
    assert digest(log) == digest(replica)
    assert digest(rows({"id": 1, "note": "1"})) != digest(rows({"id": 1, "note": 1}))


def test_differences_name_the_row_and_the_column() -> None:
    expected = side("log", item=rows({"id": 1, "name": "a"}, {"id": 2, "name": "b"}))
    found = side("replica", item=rows({"id": 2, "name": "c"}, {"id": 3, "name": "d"}))
    (verdict,) = compare(expected, found)
    assert not verdict.is_same
    assert [difference.as_json() for difference in verdict.differences] == [
        {"table": "item", "key": [1], "only": "log"},
        {"table": "item", "key": [2], "column": "name", "expected": "b", "found": "c"},
        {"table": "item", "key": [3], "only": "replica"},
    ]


def test_a_table_that_one_stage_lacks_differs_even_if_it_is_empty() -> None:
    verdicts = compare(side("log", a={}, b={}), side("replica", a={}))
    assert [(verdict.table, verdict.is_same) for verdict in verdicts] == [("a", True), ("b", False)]
