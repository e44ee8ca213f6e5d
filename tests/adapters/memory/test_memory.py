"""The memory adapter."""

import json
from pathlib import Path

import pytest

from adapters.memory import MemoryAdapter, MemoryStore
from changesource_sdk.adapter import (
    AddColumn,
    AlterColumn,
    CreateIndex,
    Delete,
    Index,
    Insert,
    Position,
    RenameTable,
    Update,
)
from changesource_sdk.errors import AdapterError, ConfigurationError, ResyncRequired
from changesource_sdk.schema import Column, Table


def a_store() -> MemoryStore:
    return MemoryStore([Table("issue", [Column("id", int), Column("title", str)])])


def test_the_snapshot_is_what_the_transactions_made() -> None:
    store = a_store()
    store.commit([Insert("issue", {"id": 1, "title": "a"}), Insert("issue", {"id": 2, "title": "b"})])
    store.commit([Update("issue", {"id": 3, "title": "c"}, old_key={"id": 1}), Delete("issue", {"id": 2})])
    snapshot = MemoryAdapter(store=store).snapshot()
    assert snapshot.position == 2
    assert [list(partition.rows()) for partition in snapshot.partitions] == [[{"id": 3, "title": "c"}]]


@pytest.mark.parametrize("position", [7, "of another store", {"seq": 1}])
def test_a_position_of_another_store_asks_for_a_new_snapshot(position: Position) -> None:
    with pytest.raises(ResyncRequired, match="not made by this store"):
        next(MemoryAdapter(store=MemoryStore([])).changes(position))


def test_changes_continue_after_a_position() -> None:
    store = a_store()
    for number in range(3):
        store.commit([Insert("issue", {"id": number, "title": "x"})])
    found = list(MemoryAdapter(store=store).changes(1))
    assert [transaction.position for transaction in found] == [2, 3]
    assert list(found[0].changes) == [Insert("issue", {"id": 1, "title": "x"})]


def test_tables_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "data.json"
    file.write_text(
        json.dumps({"issue": [{"id": 1, "open": True, "tags": ["a"], "who": None}], "log": [{"line": "x"}]})
    )
    adapter = MemoryAdapter(file=str(file))
    issue, log = adapter.tables()
    assert [column.data_type for column in issue.columns] == ["int8", "bool", "json", "text"]
    assert (issue.key, log.key) == (("id",), ("line",))


@pytest.mark.parametrize("content", ["", "[]", '{"issue": []}', '{"issue": 5}'])
def test_a_file_that_does_not_fit_is_a_clear_error(tmp_path: Path, content: str) -> None:
    file = tmp_path / "data.json"
    file.write_text(content)
    with pytest.raises(ConfigurationError, match="memory-file"):
        MemoryAdapter(file=str(file))


def test_the_store_refuses_what_it_cannot_hold() -> None:
    with pytest.raises(AdapterError, match="no-indexes"):
        a_store().commit([CreateIndex(Index("by_id", ["id"], table="issue"))])


def test_schema_changes_are_part_of_the_history() -> None:
    store = MemoryStore([Table("issue", [Column("id", int), Column("title", str)])])
    store.commit([Insert("issue", {"id": 1, "title": "a"}), AddColumn("issue", Column("open", bool, default=True))])
    store.commit([RenameTable("issue", "ticket"), AlterColumn("ticket", "title", Column("name", str))])
    assert store.rows == {"ticket": {(1,): {"id": 1, "name": "a", "open": True}}}
    adapter = MemoryAdapter(store=store)
    assert adapter.tables()[0].column_names == ("id", "name", "open")
    (last,) = adapter.changes(1)
    assert [type(change) for change in last.changes] == [RenameTable, AlterColumn]
    assert adapter.snapshot().tables == adapter.tables()


def test_an_update_keeps_the_columns_it_leaves_out() -> None:
    store = MemoryStore([Table("issue", [Column("id", int), Column("title", str), Column("open", bool)])])
    store.commit([Insert("issue", {"id": 1, "title": "a", "open": True}), Update("issue", {"id": 1, "title": "b"})])
    assert list(store.rows["issue"].values()) == [{"id": 1, "title": "b", "open": True}]
