"""Identities: kept through renames, given anew to what is new, and doubted when the counter says more than the eye."""

from dataclasses import replace

from adapters.sqlite.catalog.identity import Trace, recognise
from adapters.sqlite.catalog.model import Catalog, ColumnDef, TableDef

FOUND = TableDef(
    0, "t", (ColumnDef(0, "id", "int8", True), ColumnDef(0, "a", "text"), ColumnDef(0, "b", "text")), ("id",), ("oid",)
)
TEXTS = {"table t": 1}
FIRST = recognise(Catalog("origin"), [FOUND], [], TEXTS, 5)
(KNOWN,) = FIRST.tables


def found(*names: str, name: str = "t", key: tuple[str, ...] = ("id",)) -> TableDef:
    return replace(FOUND, name=name, key=key, columns=tuple(ColumnDef(0, n, "text") for n in names))


def seen(table: TableDef, *columns: str, steps: int = 1, texts: dict[str, int] | None = None) -> TableDef:
    trace = Trace(KNOWN.id, table.name, columns)
    (recognised,) = recognise(FIRST, [table], [trace], texts or {"table t": 2}, FIRST.cookie + steps).tables
    return recognised


def kept(table: TableDef) -> list[str]:
    """The columns that are still the ones first known."""
    known = {column.id for column in KNOWN.columns}
    return [column.name for column in table.columns if column.id in known]


def test_every_number_is_given_once() -> None:
    numbers = [KNOWN.id, *(column.id for column in KNOWN.columns)]
    assert len(set(numbers)) == 4
    assert FIRST.next_id == max(numbers) + 1


def test_a_table_without_its_trace_is_new() -> None:
    (table,) = recognise(FIRST, [FOUND], [], TEXTS, 6).tables
    assert table.id >= FIRST.next_id


def test_a_trace_under_another_name_is_a_renamed_table() -> None:
    assert seen(found("id", "a", "b", name="u"), "id", "a", "b", texts={"table u": 1}).id == KNOWN.id


def test_a_renamed_column_keeps_its_number() -> None:
    table = seen(found("id", "z", "b"), "id", "z", "b")
    assert [column.id for column in table.columns] == [column.id for column in KNOWN.columns]


def test_a_column_that_the_trace_does_not_know_is_new() -> None:
    assert kept(seen(found("id", "a", "c"), "id", "a", "b", steps=2)) == ["id", "a"]


def test_a_column_out_of_order_was_dropped_and_added_again() -> None:
    assert kept(seen(found("id", "b", "a"), "id", "a", "b", steps=2)) == ["id", "b"]


def test_another_key_makes_another_table() -> None:
    assert seen(found("id", "a", "b", key=("a",)), "id", "a", "b").id != KNOWN.id


def test_rows_are_doubted_when_the_counter_moved_further_than_can_be_seen() -> None:
    unchanged = found("id", "a", "b")
    assert seen(unchanged, "id", "a", "b", steps=1, texts=TEXTS).revision == 0
    assert seen(unchanged, "id", "a", "b", steps=2, texts=TEXTS).revision == 1
    assert seen(unchanged, "id", "a", "b", steps=2, texts={**TEXTS, "index i": 1}).revision == 0
    assert seen(unchanged, "id", "a", "b", steps=3, texts={**TEXTS, "index i": 1}).revision == 1
    assert seen(unchanged, "id", "a", "b", steps=-4, texts=TEXTS).revision == 1


def test_a_last_column_that_cannot_be_dropped_is_beyond_doubt() -> None:
    fixed = replace(FOUND, columns=(*FOUND.columns[:2], ColumnDef(0, "b", "text", not_null=True)))
    assert seen(fixed, "id", "a", "b", steps=2, texts=TEXTS).revision == 0
