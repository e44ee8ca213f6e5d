"""The view: trees, counts, identity of what did not change, and when listeners are called."""

from typing import Any

import pytest

from protocol.sync.ast_json import parse
from reference_cache.zql.engine.engine import Engine
from reference_cache.zql.format import Format
from reference_cache.zql.ivm.change import add, edit, remove
from reference_cache.zql.ivm.view import View, ViewError
from reference_cache.zql.schema import hop, schema, table
from tests.support.workloads.tables import Tables

SCHEMA = schema(
    [
        table("issue", {"id": "string", "title": "string"}),
        table("tagging", {"issue": "string", "label": "string"}, ["issue", "label"]),
        table("label", {"id": "string", "name": "string", "group": "string?"}),
        table("group", {"id": "string"}),
    ],
    {"issue": {"labels": (hop("id", "tagging", "issue"), hop("label", "label", "id"))}},
)


def related(table: str, parent: str, child: str, alias: str, **more: Any) -> dict[str, Any]:
    hidden = more.pop("hidden", False)
    subquery = {"table": table, "alias": alias, **more}
    return {"hidden": hidden, "correlation": {"parentField": [parent], "childField": [child]}, "subquery": subquery}


LABELS = related(
    "tagging",
    "id",
    "issue",
    "labels",
    hidden=True,
    related=[
        related(
            "label",
            "label",
            "id",
            "labels",
            orderBy=[["name", "asc"]],
            related=[related("group", "group", "id", "group")],
        )
    ],
)
ISSUES = {"table": "issue", "related": [LABELS]}
TREE = Format(relationships={"labels": Format(relationships={"group": Format(singular=True)})})

DATA: dict[str, list[dict[str, Any]]] = {
    "issue": [{"id": "i1", "title": "one"}, {"id": "i2", "title": "two"}],
    "tagging": [{"issue": "i1", "label": "l1"}, {"issue": "i1", "label": "l2"}, {"issue": "i2", "label": "l1"}],
    "label": [{"id": "l1", "name": "b", "group": "g"}, {"id": "l2", "name": "a", "group": None}],
    "group": [{"id": "g"}],
}


@pytest.fixture
def engine() -> Engine:
    return Engine(SCHEMA, Tables(SCHEMA, DATA, "memory").open_source)


@pytest.fixture
def view(engine: Engine) -> View:
    return engine.materialize(parse(ISSUES), TREE)


def labels(view: View) -> dict[str, list[str]]:
    assert isinstance(view.result, list)
    return {issue["id"]: [label["name"] for label in issue["labels"]] for issue in view.result}


def test_a_junction_is_skipped_and_its_children_stand_in_its_place(view: View) -> None:
    assert view.result == [
        {
            "id": "i1",
            "title": "one",
            "labels": [
                {"id": "l2", "name": "a", "group": None},
                {"id": "l1", "name": "b", "group": {"id": "g"}},
            ],
        },
        {"id": "i2", "title": "two", "labels": [{"id": "l1", "name": "b", "group": {"id": "g"}}]},
    ]


def test_rows_come_and_go_at_every_level(engine: Engine, view: View) -> None:
    engine.push("tagging", add(("i2", "l2")))
    engine.push("tagging", remove(("i1", "l1")))
    engine.push("issue", add(("i0", "zero")))
    assert labels(view) == {"i0": [], "i1": ["a"], "i2": ["a", "b"]}
    engine.push("issue", remove(("i2", "two")))
    assert labels(view) == {"i0": [], "i1": ["a"]}


def test_an_edit_moves_a_row_to_its_new_place_with_what_hangs_below(engine: Engine, view: View) -> None:
    engine.push("label", edit(("l1", "A", "g"), ("l1", "b", "g")))
    assert labels(view) == {"i1": ["A", "a"], "i2": ["A"]}
    assert isinstance(view.result, list)
    assert view.result[0]["labels"][0]["group"] == {"id": "g"}


def test_a_row_reached_along_two_paths_stays_until_both_are_gone() -> None:
    self_join = schema(
        [
            table("a", {"id": "string"}),
            table("j", {"n": "number", "a": "string", "b": "string"}, "n"),
            SCHEMA.tables["label"],
        ],
        {},
    )
    rows: dict[str, list[dict[str, Any]]] = {
        "a": [{"id": "a1"}],
        "j": [{"n": 1, "a": "a1", "b": "l1"}, {"n": 2, "a": "a1", "b": "l1"}],
        "label": [{"id": "l1", "name": "x", "group": "l2"}, {"id": "l2", "name": "y", "group": None}],
    }
    engine = Engine(self_join, Tables(self_join, rows, "memory").open_source)
    below = related("label", "b", "id", "labels", related=[related("label", "group", "id", "up")])
    query = {"table": "a", "related": [related("j", "id", "a", "labels", hidden=True, related=[below])]}
    view = engine.materialize(parse(query), Format(relationships={"labels": Format(relationships={"up": Format()})}))

    def shown() -> list[Any]:
        assert isinstance(view.result, list)
        return [(label["name"], [up["name"] for up in label["up"]]) for label in view.result[0]["labels"]]

    assert shown() == [("x", ["y"])]
    engine.push("j", remove((1, "a1", "l1")))
    assert shown() == [("x", ["y"])]
    engine.push("j", add((3, "a1", "l1")))
    engine.push("label", edit(("l1", "z", "l2"), ("l1", "x", "l2")))
    assert shown() == [("z", ["y"])]
    engine.push("label", remove(("l2", "y", None)))
    assert shown() == [("z", [])]
    engine.push("label", add(("l2", "y", None)))
    engine.push("j", remove((2, "a1", "l1")))
    assert shown() == [("z", ["y"])]
    engine.push("j", remove((3, "a1", "l1")))
    assert shown() == []


def test_what_did_not_change_stays_the_same_object(engine: Engine, view: View) -> None:
    before = view.result
    assert isinstance(before, list)
    engine.push("issue", edit(("i1", "ONE"), ("i1", "one")))
    after = view.result
    assert isinstance(after, list)
    assert after[0]["title"] == "ONE"
    assert after[0]["labels"] is before[0]["labels"]
    assert after[1] is before[1]
    assert before[0]["title"] == "one"
    assert view.result is after


def test_listeners_are_called_once_per_transaction(engine: Engine, view: View) -> None:
    results: list[Any] = []
    stop = view.listen(results.append)
    engine.flush()
    engine.push("issue", add(("i3", "three")))
    engine.push("issue", add(("i4", "four")))
    engine.flush()
    engine.flush()
    stop()
    engine.push("issue", add(("i5", "five")))
    engine.flush()
    assert [len(result) for result in results] == [2, 4]


def test_a_singular_view_shows_one_row_or_nothing(engine: Engine) -> None:
    view = engine.materialize(parse({"table": "issue", "limit": 1}), Format(singular=True))
    assert view.result == {"id": "i1", "title": "one"}
    engine.push("issue", remove(("i1", "one")))
    assert view.result == {"id": "i2", "title": "two"}
    engine.push("issue", remove(("i2", "two")))
    assert view.result is None


def test_two_rows_where_one_was_declared_are_an_error(engine: Engine) -> None:
    with pytest.raises(ViewError, match="declare it as many"):
        engine.materialize(parse({"table": "issue"}), Format(singular=True))


def test_of_two_relationships_with_one_alias_the_last_counts(engine: Engine) -> None:
    first = related("label", "id", "id", "x")
    second = related("tagging", "id", "issue", "x")
    view = engine.materialize(
        parse({"table": "issue", "related": [first, second]}), Format(relationships={"x": Format()})
    )
    assert isinstance(view.result, list)
    assert [len(issue["x"]) for issue in view.result] == [2, 1]


def test_a_released_view_is_no_longer_kept_current(engine: Engine, view: View) -> None:
    engine.release(view)
    engine.push("issue", add(("i3", "three")))
    assert isinstance(view.result, list)
    assert len(view.result) == 2
