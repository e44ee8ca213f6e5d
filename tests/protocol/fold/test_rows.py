"""Rows in plain dicts, after changes as they travel."""

import pickle

import pytest

from protocol.changes import Change
from protocol.fold.row_steps import Added, Changed, Dropped, step_of
from protocol.fold.rows import FoldedTables, rows_of
from protocol.specs import JsonObject
from tests.protocol.rules.test_changes import BY_ID, GHOST, ISSUE, change, column, create, index

PAIR: JsonObject = {**ISSUE, "rowKey": {"columns": ["id", "title"]}}


def insert(**row: object) -> Change:
    return change("insert", relation=BY_ID, new=row)


def update(key: JsonObject | None = None, **row: object) -> Change:
    return change("update", relation=BY_ID, key=key, new=row)


def folded(*changes: Change) -> FoldedTables:
    tables = FoldedTables()
    tables.apply(changes)
    return tables


def test_a_row_is_the_last_that_was_inserted_with_its_key() -> None:
    tables = folded(create("issue"), insert(id=1, title="a"), insert(id=2, title="b"), insert(id=1, title="c"))
    assert tables.tables == {"issue": {(1,): {"id": 1, "title": "c"}, (2,): {"id": 2, "title": "b"}}}


def test_an_update_keeps_the_columns_that_it_leaves_out() -> None:
    tables = folded(insert(id=1, title="a"), update(id=1, rank=2), update(id=5, rank=3))
    assert tables.tables["issue"] == {(1,): {"id": 1, "title": "a", "rank": 2}, (5,): {"id": 5, "rank": 3}}


def test_an_update_with_an_old_key_moves_the_row() -> None:
    tables = folded(insert(id=1, title="a"), update({"id": 1}, id=2), update({"id": 9}, id=3))
    assert tables.tables["issue"] == {(2,): {"id": 2, "title": "a"}, (3,): {"id": 3}}


def test_rows_are_deleted_and_truncated() -> None:
    gone = change("delete", relation=BY_ID, key={"id": 1})
    assert folded(insert(id=1), insert(id=2), gone, gone).tables == {"issue": {(2,): {"id": 2}}}
    assert folded(insert(id=1), change("truncate", relations=[BY_ID])).tables == {"issue": {}}


def test_a_table_keeps_its_rows_under_a_new_name_and_loses_them_when_dropped() -> None:
    renamed = change("rename-table", old=ISSUE, new=GHOST)
    assert folded(insert(id=1), renamed).tables == {"ghost": {(1,): {"id": 1}}}
    assert folded(insert(id=1), renamed, change("drop-table", id=GHOST)).tables == {}


def test_rows_go_through_column_changes() -> None:
    tables = folded(
        insert(id=1, title="7", old="x"),
        change("add-column", table=ISSUE, column=column("rank", "int8", dflt="3")),
        change("drop-column", table=ISSUE, column="old"),
        change("update-column", table=ISSUE, old=column("title"), new=column("name")),
    )
    assert tables.tables["issue"] == {(1,): {"id": 1, "rank": 3, "name": "7"}}


def test_values_are_converted_as_a_replica_converts_them_when_their_type_changes() -> None:
    retyped = change("update-column", table=ISSUE, old=column("title"), new=column("title", "int8"))
    tables = folded(
        insert(id=1, title="7"), insert(id=2, title="x"), insert(id=3), insert(id=4, title={"a": 1}), retyped
    )
    assert [row.get("title") for row in tables.tables["issue"].values()] == [7, "x", None, {"a": 1}]


def test_a_default_that_no_consumer_understands_matters_only_to_rows() -> None:
    added = change("add-column", table=ISSUE, column=column("at", "timestamptz", dflt="now()"))
    assert folded(create("issue"), added).tables == {"issue": {}}
    with pytest.raises(ValueError, match="not understood"):
        folded(insert(id=1), added)


def test_indexes_are_kept_along() -> None:
    assert list(folded(create("issue"), index("i", "id")).indexes) == ["i"]


def test_touched_rows_are_named_by_table_and_key() -> None:
    moved = change("update", relation=PAIR, key={"id": 1, "title": "a"}, new={"id": 1, "title": "b"})
    touched = [*rows_of([insert(id=1), update(id=2), moved, change("delete", relation=BY_ID, key={"id": 3})])]
    assert touched == [("issue", key) for key in [(1,), (2,), (1, "b"), (1, "a"), (3,)]]
    assert list(rows_of([create("other")])) == []


@pytest.mark.parametrize(
    ("changed", "step"),
    [
        (change("add-column", table=ISSUE, column=column("a", "bool", dflt="true")), Added("a", True)),
        (change("drop-column", table=ISSUE, column="a"), Dropped("a")),
        (change("update-column", table=ISSUE, old=column("a"), new=column("b")), Changed("a", "b", None)),
    ],
)
def test_steps_can_be_sent_to_other_processes(changed: Change, step: object) -> None:
    assert pickle.loads(pickle.dumps(step_of(changed))) == step  # type: ignore[arg-type]
