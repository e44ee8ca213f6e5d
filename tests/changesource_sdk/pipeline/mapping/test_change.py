"""Mappings of changes: one by one, and the property that a snapshot and the changes after it agree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.memory import MemoryAdapter, MemoryStore
from changesource_sdk.adapter import (
    AddColumn,
    AlterColumn,
    BadRow,
    Change,
    Column,
    CreateIndex,
    CreateTable,
    Delete,
    DropColumn,
    DropTable,
    Index,
    Insert,
    RenameTable,
    Row,
    Truncate,
    Update,
)
from changesource_sdk.errors import ChangesourceError, ResyncRequired
from changesource_sdk.pipeline.mapped import MappedAdapter
from changesource_sdk.pipeline.mapping.change import ChangeMapper
from changesource_sdk.pipeline.mapping.declare import Function, MappedColumn, Mask, Sql, TableMapping
from changesource_sdk.pipeline.mapping.table import map_tables
from tests.changesource_sdk.pipeline.mapping import people
from tests.changesource_sdk.pipeline.mapping.people import MAPPINGS, PERSON

ADULT = {"id": 1, "name": "Ada", "email": "a@x.org", "age": 36}
CHILD = {"id": 1, "name": "Ada", "email": "a@x.org", "age": 8}
MAPPED = {"id": 1, "label": "Ada", "email": "***", "label_length": 3}


def mapped(*changes: Change, mapping: TableMapping = MAPPINGS["person"]) -> list[Change]:
    mappings = {"person": mapping}
    return list(ChangeMapper(map_tables([PERSON], mappings), mappings).changes(changes))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (Insert("person", ADULT), [Insert("adult", MAPPED)]),
        (Insert("public.person", ADULT), [Insert("adult", MAPPED)]),
        (Insert("person", CHILD), [Delete("adult", {"id": 1})]),
        (Insert("person", {"id": 1, "name": "Ada"}), [Delete("adult", {"id": 1})]),
        (Update("person", ADULT), [Insert("adult", MAPPED)]),
        (Update("person", CHILD), [Delete("adult", {"id": 1})]),
        (Update("person", ADULT, {"id": 9}), [Delete("adult", {"id": 9}), Insert("adult", MAPPED)]),
        (Update("person", CHILD, {"id": 9}), [Delete("adult", {"id": 9})]),
        (Update("person", ADULT, CHILD), [Insert("adult", MAPPED)]),
        (Update("person", CHILD, ADULT), [Delete("adult", {"id": 1})]),
        (Update("person", CHILD, CHILD), []),
        (Update("person", ADULT, ADULT), [Update("adult", MAPPED, {"id": 1})]),
        (Update("person", {"id": 1, "age": 40}, ADULT), [Update("adult", MAPPED, {"id": 1})]),
        (Delete("person", {"id": 1}), [Delete("adult", {"id": 1})]),
        (Delete("person", ADULT), [Delete("adult", {"id": 1})]),
        (Delete("person", CHILD), []),
        (Truncate(["person", "other"]), [Truncate(["adult", "other"])]),
        (Insert("other", ADULT), [Insert("other", ADULT)]),
        (DropTable("person"), [DropTable("adult")]),
    ],
)
def test_a_row_is_seen_through_the_filter_before_and_after(change: Change, expected: list[Change]) -> None:
    assert mapped(change) == expected


def test_without_filter_a_part_of_a_row_stays_a_part() -> None:
    mapping = TableMapping(rename={"name": "label"}, columns={"email": MappedColumn(Mask("hash"))})
    update = Update("person", {"id": 1, "name": "Eve"})
    assert mapped(update, mapping=mapping) == [Update("person", {"id": 1, "label": "Eve"})]


def test_a_key_that_is_computed_is_computed_for_deletes_and_old_keys_too() -> None:
    mapping = TableMapping(columns={"id": MappedColumn(Function(people.negative_id))})
    assert mapped(Delete("person", {"id": 7}), mapping=mapping) == [Delete("person", {"id": -7})]
    (update,) = mapped(Update("person", ADULT, {"id": 7}), mapping=mapping)
    assert update == Update("person", {**ADULT, "id": -1}, {"id": -7})


@pytest.mark.parametrize(
    ("change", "mapping", "code", "where"),
    [
        (
            Update("person", {"id": 1, "name": "Ada"}),
            TableMapping(columns={"domain": MappedColumn(Function(people.domain), "text")}),
            "mapping-needs-column",
            "mapping.person.columns.domain",
        ),
        (
            Update("person", {"id": 1, "name": "Ada"}),
            TableMapping(filter=Function(people.is_adult)),
            "mapping-needs-column",
            "mapping.person.filter",
        ),
        (
            Update("person", {"id": 1, "age": 30}),
            TableMapping(filter=Function(people.is_adult)),
            "mapping-needs-column",
            "mapping.person.filter",
        ),
        (
            Insert("person", ADULT),
            TableMapping(columns={"age": MappedColumn(Function(people.broken))}),
            "mapping-failed",
            "mapping.person.columns.age, table person, row id=1",
        ),
    ],
)
def test_what_cannot_be_decided_is_refused_by_key(change: Change, mapping: TableMapping, code: str, where: str) -> None:
    with pytest.raises(ChangesourceError) as refused:
        for made in mapped(change, mapping=mapping):
            assert isinstance(made, BadRow)
            assert (made.table, made.key) == ("person", {"id": 1})
            raise made.error
    assert refused.value.code == code
    assert where in refused.value.where
    assert refused.value.fix


def test_schema_changes_speak_of_the_columns_that_consumers_have() -> None:
    mapping = TableMapping(name="human", rename={"name": "label"}, columns={"email": MappedColumn(Mask("null"))})
    height = Column("height", float)
    assert mapped(
        AddColumn("person", height),
        AlterColumn("person", "name", Column("name", "varchar")),
        DropColumn("person", "age"),
        CreateIndex(Index("person_name", ["name"], table="person")),
        Insert("person", {"id": 1, "name": "Ada", "email": "e", "height": 1.5}),
        mapping=mapping,
    ) == [
        AddColumn("human", height),
        AlterColumn("human", "label", Column("label", "varchar")),
        DropColumn("human", "age"),
        CreateIndex(Index("person_name", ["label"], table="human")),
        Insert("human", {"id": 1, "label": "Ada", "email": None, "height": 1.5}),
    ]


def test_columns_outside_the_selection_come_and_go_unseen() -> None:
    selected = TableMapping(select=["id", "name"])
    index = CreateIndex(Index("person_age2", ["age"], table="person"))
    assert mapped(AddColumn("person", Column("x", int)), DropColumn("person", "age"), index, mapping=selected) == []


def test_a_column_that_the_newest_tables_show_already_is_still_announced() -> None:
    again = AddColumn("person", Column("age", int))
    assert mapped(again, mapping=TableMapping(name="human")) == [AddColumn("human", Column("age", int))]


def test_a_dropped_column_that_the_mapping_names_is_an_error() -> None:
    with pytest.raises(ChangesourceError) as refused:
        mapped(DropColumn("person", "name"))
    assert refused.value.where.startswith("mapping.person")


def test_a_table_created_later_is_mapped_from_its_first_row() -> None:
    mapper = ChangeMapper({}, MAPPINGS)
    created, inserted = mapper.changes([CreateTable(PERSON), Insert("person", ADULT)])
    assert isinstance(created, CreateTable)
    assert created.table.full_name == "adult"
    assert inserted == Insert("adult", MAPPED)


@pytest.mark.parametrize("change", [RenameTable("person", "human"), RenameTable("human", "person")])
def test_a_mapped_table_that_is_renamed_is_read_anew(change: Change) -> None:
    with pytest.raises(ResyncRequired):
        mapped(change)


@pytest.mark.parametrize(
    "change",
    [DropColumn("person", "age"), AlterColumn("person", "age", Column("years", int)), CreateTable(PERSON)],
)
def test_a_table_with_sql_that_gets_other_columns_is_read_again(change: Change) -> None:
    with pytest.raises(ResyncRequired) as raised:
        mapped(change, mapping=TableMapping(filter=Sql("age > 18")))
    assert raised.value.code == "sql-table-changed"
    added = AddColumn("person", Column("size", int))
    assert mapped(added, mapping=TableMapping(filter=Sql("age > 18"))) == [added]


class Consumer:
    """Rows by key, changed as a consumer changes them; strict ones refuse to delete what they do not have."""

    def __init__(self, tables: Sequence[str], rows: Iterable[tuple[str, Row]], key: str, strict: bool) -> None:
        self.rows: dict[str, dict[object, Row]] = {table: {} for table in tables}
        self._key = key
        self._strict = strict
        for table, row in rows:
            assert row[key] not in self.rows[table]
            self.rows[table][row[key]] = row

    def apply(self, change: Change) -> None:
        match change:
            case Insert(table, row):
                self.rows[table][row[self._key]] = row
            case Update(table, row, old_key):
                old = self.rows[table].pop((old_key or row)[self._key], None)
                assert old is not None
                self.rows[table][row[self._key]] = {**(old or {}), **row}
            case Delete(table, key):
                gone = self.rows[table].pop(key[self._key], None)
                assert gone is not None or not self._strict
            case _:
                raise AssertionError(change)


FILTERS = (None, Function(people.is_adult), Function("tests.changesource_sdk.pipeline.mapping.people:has_email"))
COLUMNS: tuple[dict[str, MappedColumn], ...] = (
    {},
    {"email": MappedColumn(Mask("hash")), "domain": MappedColumn(Function(people.domain), "text")},
    {"age": MappedColumn(Mask("null")), "length": MappedColumn(Function(people.name_length), "int8")},
    {"id": MappedColumn(Function(people.negative_id))},
)
SELECTS: tuple[list[str] | None, ...] = (None, ["id", "email", "age"])
mappings = st.builds(
    lambda name, select, renamed, condition, columns: TableMapping(
        name=name, select=select, rename={"id": "key"} if renamed and "id" not in columns else {}, filter=condition,
        columns=columns,
    ),
    st.sampled_from([None, "human", "team.human"]),
    st.sampled_from(SELECTS),
    st.booleans(),
    st.sampled_from(FILTERS),
    st.sampled_from(COLUMNS),
)  # fmt: skip
ids = st.integers(1, 5)
rows = st.fixed_dictionaries(
    {
        "id": ids,
        "name": st.sampled_from(["Ada", "Grace"]),
        "email": st.sampled_from([None, "a@x.org", "g@y.org"]),
        "age": st.sampled_from([None, 8, 17, 18, 40]),
    }
)
Step = Callable[[MemoryStore, bool], Change | None]


def write(row: Row, old: int) -> Step:
    """An insert, an update, or an update that changes the key, whatever the store's rows make of it."""

    def step(store: MemoryStore, with_images: bool) -> Change | None:
        stored = store.rows["person"]
        if (row["id"],) in stored:
            before = stored[(row["id"],)]
            return Update("person", row, before if with_images else None)
        if (old,) in stored:
            return Update("person", row, stored[(old,)] if with_images else {"id": old})
        return Insert("person", row)

    return step


def delete(number: int) -> Step:
    def step(store: MemoryStore, with_images: bool) -> Change | None:
        before = store.rows["person"].get((number,))
        return None if before is None else Delete("person", before if with_images else {"id": number})

    return step


steps = st.lists(st.one_of(st.builds(write, rows, ids), st.builds(delete, ids)), max_size=12)


def carry_out(store: MemoryStore, planned: Sequence[Step], with_images: bool) -> None:
    for step in planned:
        if (change := step(store, with_images)) is not None:
            store.commit([change])


def snapshot_rows(adapter: MappedAdapter) -> list[tuple[str, Row]]:
    return [(part.table, row) for part in adapter.snapshot().partitions for row in part.rows()]


@settings(max_examples=300, deadline=None)
@given(mapping=mappings, before=steps, after=steps, with_images=st.booleans())
def test_a_snapshot_and_the_changes_after_it_give_the_rows_of_the_next_snapshot(
    mapping: TableMapping, before: list[Step], after: list[Step], with_images: bool
) -> None:
    store = MemoryStore([PERSON])
    adapter = MappedAdapter(MemoryAdapter(store=store), {"person": mapping})
    carry_out(store, before, with_images)
    (table,) = adapter.tables()
    (key,) = table.key
    # With a filter, a row that fails it is deleted even where nobody can know whether consumers have it.
    consumer = Consumer([table.full_name], snapshot_rows(adapter), key, strict=mapping.filter is None)
    position = adapter.snapshot().position
    carry_out(store, after, with_images)
    if position != len(store.history):
        for transaction in adapter.changes(position):
            for change in transaction.changes:
                consumer.apply(change)
    expected = Consumer([table.full_name], snapshot_rows(adapter), key, strict=True)
    assert consumer.rows == expected.rows
