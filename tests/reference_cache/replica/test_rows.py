"""What changes to rows do, and what the log says they did."""

from __future__ import annotations

import pytest

from reference_cache.replica.errors import CannotApply, ChangesForgotten
from tests.reference_cache.replica.conftest import MakeReplica
from tests.reference_cache.sources import ITEM, delete, insert, update


def test_an_insert_replaces_the_row_with_its_key_whole(replica: MakeReplica) -> None:
    made = replica(insert(1, "one", note="x"), columns={"note": "text"})
    made.commit("02", ["data", {"tag": "insert", "relation": ITEM, "new": {"id": 1, "name": "uno"}}])
    assert made.rows('SELECT id, name, note, "_0_version" FROM item') == [(1, "uno", None, "02")]


def test_the_log_tells_a_replacement_as_a_removal_and_an_addition(replica: MakeReplica) -> None:
    made = replica(insert(1, "one"))
    made.commit("02", insert(1, "uno"))
    assert made.log("01", "02") == [
        ("02", "item", "Remove", (1, "one", "01")),
        ("02", "item", "Add", (1, "uno", "02")),
    ]


def test_an_update_keeps_columns_it_does_not_name(replica: MakeReplica) -> None:
    made = replica(insert(1, "one", note="x"), columns={"note": "text"})
    made.commit("02", update(1, "uno"))
    assert made.rows("SELECT id, name, note FROM item") == [(1, "uno", "x")]
    assert made.log("01", "02") == [("02", "item", "Edit", (1, "uno", "x", "02"), (1, "one", "x", "01"))]


def test_an_update_with_the_old_key_moves_the_row(replica: MakeReplica) -> None:
    made = replica(insert(1, "one"), insert(2, "two"))
    made.commit("02", update(3, "three", old=1))
    assert made.rows() == [(2, "two"), (3, "three")]


def test_an_update_onto_the_key_of_another_row_replaces_that_one(replica: MakeReplica) -> None:
    made = replica(insert(1, "one"), insert(2, "two"))
    made.commit("02", update(2, "new", old=1))
    assert made.rows() == [(2, "new")]
    assert [entry[2] for entry in made.log("01", "02")] == ["Remove", "Edit"]


def test_an_update_of_a_missing_row_inserts_it_and_a_delete_of_one_does_nothing(replica: MakeReplica) -> None:
    made = replica()
    made.commit("02", update(1, "one"), delete(9))
    assert made.rows() == [(1, "one")]
    assert made.log("01", "02") == [("02", "item", "Add", (1, "one", "02"))]


def test_the_key_of_a_full_relation_is_the_tables_own(replica: MakeReplica) -> None:
    made = replica(insert(1, "one"), insert(2, "two"))
    full = {**ITEM, "rowKey": {"columns": ["id", "name"], "type": "full"}}
    made.commit(
        "02",
        ["data", {"tag": "update", "relation": full, "key": {"id": 1, "name": "?"}, "new": {"id": 1, "name": "uno"}}],
        ["data", {"tag": "delete", "relation": full, "key": {"id": 2, "name": "?"}}],
    )
    assert made.rows() == [(1, "uno")]


def test_the_older_form_of_the_key_is_understood(replica: MakeReplica) -> None:
    made = replica(insert(1, "one"))
    old = {"schema": "public", "name": "item", "keyColumns": ["id"], "replicaIdentity": "default"}
    made.commit("02", ["data", {"tag": "delete", "relation": old, "key": {"id": 1}}])
    assert made.rows() == []


def test_rows_that_come_twice_in_an_initial_sync_replace_each_other(replica: MakeReplica) -> None:
    made = replica(insert(1, "first"), insert(2, "two"), insert(1, "second"))
    assert made.rows() == [(1, "second"), (2, "two")]


def test_an_initial_sync_may_change_and_delete_what_it_inserted(replica: MakeReplica) -> None:
    made = replica(insert(1, "one"), insert(2, "two"), update(1, "uno"), delete(2), insert(1, "eins"), insert(3))
    assert made.rows() == [(1, "eins"), (3, None)]


@pytest.mark.parametrize(
    ("data_type", "sent", "stored"),
    [
        ("json", {"a": [1, None]}, '{"a":[1,null]}'),
        ("json", "text", '"text"'),
        ("json", 5, "5"),
        ("json", None, None),
        ("bool", True, 1),
        ("float8", 5, 5.0),
        ("numeric", 5, 5),
        ("timestamptz", 1709210096789.123, 1709210096789.123),
        ("int8", 2**63 - 1, 2**63 - 1),
        ("uuid", "00123", "00123"),
        ("text", {"a": 1}, '{"a":1}'),
        ("bytea", "\\x00ff", "\\x00ff"),
    ],
)
def test_values_are_stored_for_the_type_of_their_column(
    replica: MakeReplica, data_type: str, sent: object, stored: object
) -> None:
    made = replica(insert(1, value=sent), columns={"value": data_type})
    made.commit("02", insert(2, value=sent), update(3, value=sent))
    found = made.rows("SELECT value FROM item ORDER BY id")
    assert [(type(value), value) for (value,) in found] == [(type(stored), stored)] * 3


def test_json_that_comes_as_text_is_stored_untouched(replica: MakeReplica) -> None:
    made = replica(columns={"value": "json"})
    made.commit("02", insert(1, value='{"a": 1.0}'), update(2, value="null"), json_mode="s")
    assert made.rows("SELECT value FROM item") == [('{"a": 1.0}',), ("null",)]


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (insert(1, other=2), "no column 'other'"),
        (update(1, other=2), "no column 'other'"),
        (insert(2**63), "does not fit 64 bits"),
        (insert(2**64), "does not fit 64 bits"),
        (insert(-(2**63) - 1), "does not fit 64 bits"),
        (["data", {"tag": "delete", "relation": ITEM, "key": {"name": "x"}}], "lacks the value of its key"),
        (["data", {"tag": "delete", "relation": {**ITEM, "name": "none"}, "key": {"id": 1}}], "no table 'none'"),
        (
            ["data", {"tag": "delete", "relation": {**ITEM, "rowKey": {"columns": []}}, "key": {"id": 1}}],
            "has no key",
        ),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(
    replica: MakeReplica, message: list[object], said: str
) -> None:
    made = replica(insert(7, "seven"))
    with pytest.raises(CannotApply, match=said):
        made.commit("02", insert(8), message)
    made.writer.rollback()
    assert made.rows() == [(7, "seven")]
    made.commit("02", insert(9))
    assert made.rows() == [(7, "seven"), (9, None)]


def test_transactions_that_share_a_flush_are_one_step_for_readers_and_rows_keep_their_own_versions(
    replica: MakeReplica,
) -> None:
    made = replica()
    for version, key in (("02", 2), ("03", 3)):
        made.writer.begin(version, "p")
        made.writer.rows("item").insert({"id": key, "name": None}, ("id",))
        made.writer.commit()
    assert made.rows() == [], "nothing is visible before the flush"
    made.writer.flush()
    assert [(entry[0], entry[3]) for entry in made.log("01", "03")] == [
        ("03", (2, None, "02")),
        ("03", (3, None, "03")),
    ]


def test_a_row_that_is_refused_at_the_flush_takes_all_that_share_it_back(replica: MakeReplica) -> None:
    made = replica(insert(1, "one"))
    made.writer.begin("02", "p")
    made.writer.rows("item").insert({"id": 2, "name": None}, ("id",))
    made.writer.commit()
    made.writer.begin("03", "p")
    made.writer.rows("item").insert({"id": 2**70, "name": None}, ("id",))
    made.writer.commit()
    with pytest.raises(CannotApply, match="does not fit 64 bits"):
        made.writer.flush()
    made.writer.rollback()
    assert made.rows() == [(1, "one")]
    made.commit("02", insert(2, "two"))
    assert made.log("01", "02") == [("02", "item", "Add", (2, "two", "02"))]


def test_forgotten_changes_cannot_be_asked_for(replica: MakeReplica) -> None:
    made = replica()
    made.commit("02", *(insert(key) for key in range(1500)))
    made.writer.retention.forget_changes("02")
    made.commit("03", insert(3000))
    with pytest.raises(ChangesForgotten):
        made.changes("01", "03")
    assert made.log("02", "03") == [("03", "item", "Add", (3000, None, "03"))]
    made.commit("04", insert(4000))
    assert [entry[0] for entry in made.log("02", "04")] == ["03", "04"]


def test_without_a_reader_the_log_stays_within_its_bound(replica: MakeReplica) -> None:
    made = replica()
    made.writer.retention.max_logged = 1000
    for version in range(2, 9):
        made.commit(f"0{version}", *(insert(version * 1000 + key) for key in range(600)))
    assert made.writer.retention.logged <= 1600
    assert not made.writer.retention.is_full
