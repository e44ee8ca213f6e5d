"""Schema changes in the replica: the rows, the schema that queries see, and what readers of the log get."""

from __future__ import annotations

from typing import Any

import pytest

from reference_cache.replica.change_log import SchemaChanged, Truncated
from reference_cache.replica.errors import CannotApply
from reference_cache.replica.schema import read_schema
from tests.reference_cache.replica.conftest import Filled, MakeReplica
from tests.reference_cache.sources import ITEM, insert, update
from tests.support.fakes.tiny_source import Message, table

NAME = {"schema": "public", "name": "item"}


def change(tag: str, **fields: Any) -> Message:
    return ["data", {"tag": tag, **fields}]


def column(name: str, data_type: str, **spec: Any) -> dict[str, Any]:
    return {"name": name, "spec": {"pos": 9, "dataType": data_type, **spec}}


def columns_of(made: Filled, name: str = "item") -> dict[str, str]:
    return {column: each.type for column, each in read_schema(made.connect()).tables[name].columns.items()}


def test_an_added_column_has_its_default_and_its_rows_are_new_to_clients(replica: MakeReplica) -> None:
    made = replica(insert(1, "one"))
    made.commit("02", change("add-column", table=NAME, column=column("size", "int4", dflt="7")), insert(2, size=8))
    assert made.rows('SELECT id, size, "_0_version" FROM item') == [(1, 7, "02"), (2, 8, "02")]
    assert columns_of(made) == {"id": "number", "name": "string", "size": "number"}
    assert made.changes("01", "02") == [("02", "item", SchemaChanged())]


def test_changes_after_a_schema_change_are_logged_in_the_new_shape(replica: MakeReplica) -> None:
    made = replica(insert(1, "one"))
    made.commit("02", insert(5), change("add-column", table=NAME, column=column("size", "int4")))
    made.commit("03", update(1, "uno", size=3))
    assert made.log("02", "03") == [("03", "item", "Edit", (1, "uno", 3, "03"), (1, "one", None, "02"))]
    assert made.changes("01", "03") == [("02", "item", SchemaChanged())]


def test_a_renamed_column_keeps_its_values(replica: MakeReplica) -> None:
    made = replica(insert(1, "one"))
    made.commit("02", change("update-column", table=NAME, old=column("name", "text"), new=column("title", "text")))
    assert made.rows("SELECT id, title FROM item") == [(1, "one")]
    assert columns_of(made) == {"id": "number", "title": "string"}


def test_a_column_of_another_type_has_its_values_converted_and_indexes_stay(replica: MakeReplica) -> None:
    made = replica(insert(1, "one"), insert(2, "two"))
    old, new = column("id", "int8", notNull=True), column("key", "text", notNull=True)
    made.commit("02", change("update-column", table=NAME, old=old, new=new))
    assert made.rows("SELECT key, name FROM item ORDER BY key") == [("1", "one"), ("2", "two")]
    assert read_schema(made.connect()).tables["item"].primary_key == ("key",)
    made.commit("03", ["data", {"tag": "insert", "relation": ITEM, "new": {"key": "1", "name": "uno"}}])
    assert made.rows("SELECT key, name FROM item ORDER BY key") == [("1", "uno"), ("2", "two")]


def test_nullability_decides_whether_an_index_is_a_key(replica: MakeReplica) -> None:
    made = replica(insert(1, "one"))
    old, new = column("id", "int8", notNull=True), column("id", "int8", notNull=False)
    made.commit("02", change("update-column", table=NAME, old=old, new=new))
    schema = read_schema(made.connect())
    assert "item" not in schema.tables
    assert "no unique index" in schema.unsynced["item"]
    assert made.rows('SELECT "_0_version" FROM item') == [("01",)]


def test_a_dropped_column_is_gone_unless_an_index_uses_it(replica: MakeReplica) -> None:
    made = replica(insert(1, "one"))
    made.commit("02", change("drop-column", table=NAME, column="name"))
    assert columns_of(made) == {"id": "number"}
    with pytest.raises(CannotApply, match="used by the index"):
        made.commit("03", change("drop-column", table=NAME, column="id"))


def test_tables_come_go_and_are_renamed(replica: MakeReplica) -> None:
    made = replica(insert(1, "one"))
    other = {"schema": "other", "name": "thing"}
    made.commit("02", *table("public", "label", {"id": "text"}, ["id"]))
    made.commit("03", change("rename-table", old=NAME, new=other), change("drop-table", id={**NAME, "name": "label"}))
    made.commit("04", change("drop-table", id={**NAME, "name": "label"}), change("drop-index", id=NAME))
    schema = read_schema(made.connect())
    assert "other.thing" in schema.tables
    assert not {"item", "label"} & schema.tables.keys()
    assert made.rows('SELECT id, name, "_0_version" FROM "other.thing"') == [(1, "one", "03")]
    assert {entry[1] for entry in made.changes("02", "03")} == {"item", "other.thing", "label"}
    made.commit("05", ["data", {"tag": "insert", "relation": {**ITEM, **other}, "new": {"id": 2, "name": "two"}}])
    assert made.log("04", "05") == [("05", "other.thing", "Add", (2, "two", "05"))]


def test_an_index_makes_a_table_visible_and_the_shortest_key_comes_first(replica: MakeReplica) -> None:
    made = replica()
    create, index = table("public", "pair", {"a": "text", "b": "int4"}, ["a", "b"])
    made.commit("02", create)
    assert "pair" in read_schema(made.connect()).unsynced
    shorter = change(
        "create-index",
        spec={"schema": "public", "tableName": "pair", "name": "pair_b", "unique": True, "columns": {"b": "DESC"}},
    )
    made.commit("03", index, shorter)
    assert read_schema(made.connect()).tables["pair"].keys == (("b",), ("a", "b"))
    assert read_schema(made.connect()).engine_schema.tables["pair"].primary_key == ("b",)


def test_a_truncate_empties_the_table_and_is_logged_as_a_truncate(replica: MakeReplica) -> None:
    made = replica(insert(1), insert(2))
    made.commit("02", change("truncate", relations=[ITEM]), insert(3))
    made.commit("03", insert(4))
    assert made.rows() == [(3, None), (4, None)]
    assert made.changes("01", "02") == [("02", "item", Truncated())]
    assert made.log("02", "03") == [("03", "item", "Add", (4, None, "03"))]


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (table("public", "item", {"id": "int8"}, ["id"])[0], "is taken"),
        (table("public", "sqlite_x", {"id": "int8"}, ["id"])[0], "is reserved"),
        (table("public", "t", {"_0_version": "text"}, [])[0], "the cache's own"),
        (change("add-column", table=NAME, column=column("name", "text")), "already"),
        (change("add-column", table=NAME, column=column("x", "text", dflt="now()")), "not understood"),
        (change("add-column", table={**NAME, "name": "none"}, column=column("x", "text")), "no table 'none'"),
        (change("drop-column", table=NAME, column="none"), "no column 'none'"),
        (change("update-column", table=NAME, old=column("name", "text"), new=column("id", "text")), "already"),
    ],
)
def test_a_schema_change_that_does_not_fit_is_refused(replica: MakeReplica, message: Message, said: str) -> None:
    made = replica(insert(1, "one"))
    with pytest.raises(CannotApply, match=said):
        made.commit("02", message)
    made.writer.rollback()
    made.commit("02", insert(2, "two"))
    assert made.rows() == [(1, "one"), (2, "two")]
    assert columns_of(made) == {"id": "number", "name": "string"}


class TestBackfill:
    """Columns whose values come later."""

    RELATION = ITEM

    def _fill(self, watermark: str, *rows: list[object]) -> Message:
        values = {"columns": ["size"], "watermark": watermark, "rowValues": list(rows)}
        return change("backfill", relation=self.RELATION, **values)

    def _completed(self) -> Message:
        return change("backfill-completed", relation=self.RELATION, columns=["size"], watermark="02")

    def _started(self, replica: MakeReplica) -> Filled:
        made = replica(insert(1, "one"), insert(2, "two"), insert(3, "three"))
        made.commit("02", change("add-column", table=NAME, column=column("size", "int4"), backfill={"id": 1}))
        return made

    def test_the_column_is_hidden_until_it_is_complete(self, replica: MakeReplica) -> None:
        made = self._started(replica)
        made.commit("03", self._fill("02", [1, 10], [2, 20]))
        assert columns_of(made) == {"id": "number", "name": "string"}
        made.commit("04", self._fill("02", [3, 30]), self._completed())
        assert columns_of(made)["size"] == "number"
        assert made.rows('SELECT id, size, "_0_version" FROM item') == [(1, 10, "04"), (2, 20, "04"), (3, 30, "04")]

    def test_newer_values_and_deletions_of_the_stream_win(self, replica: MakeReplica) -> None:
        made = self._started(replica)
        deletion = ["data", {"tag": "delete", "relation": ITEM, "key": {"id": 2}}]
        made.commit("03", update(1, "uno", size=99), deletion, update(3, "drei"))
        made.commit("04", self._fill("02", [1, 10], [2, 20], [3, 30]), self._completed())
        assert made.rows("SELECT id, name, size FROM item") == [(1, "uno", 99), (3, "drei", 30)]

    def test_a_backfill_taken_after_a_change_has_its_values(self, replica: MakeReplica) -> None:
        made = self._started(replica)
        made.commit("03", update(1, "uno", size=99))
        made.commit("05", self._fill("04", [1, 10]))
        assert made.rows("SELECT size FROM item WHERE id = 1") == [(10,)]

    def test_rows_of_a_table_that_was_emptied_since_do_not_come_back(self, replica: MakeReplica) -> None:
        made = self._started(replica)
        made.commit("03", update(1, "uno", size=99), change("truncate", relations=[ITEM]), insert(2, "zwei", size=22))
        made.commit("04", self._fill("02", [1, 10], [2, 20], [3, 30]))
        assert made.rows("SELECT id, name, size FROM item") == [(2, "zwei", 22)]
        made.commit("06", self._fill("05", [2, 25], [4, 40]), self._completed())
        assert made.rows("SELECT id, size FROM item ORDER BY id") == [(2, 25), (4, 40)]
