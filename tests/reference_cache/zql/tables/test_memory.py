"""The memory table's indexes: made when needed, catching up when read, dropped when far behind."""

import random

import pytest

from protocol.sync.ast import Column, Literal, Ordering, Simple
from reference_cache.zql.ivm.change import add, edit, remove
from reference_cache.zql.ivm.operator import AnyOf, Request, StartPosition
from reference_cache.zql.ivm.store import SourceError
from reference_cache.zql.schema import Row
from reference_cache.zql.tables.memory import LAG_ALLOWED, SCANS_BEFORE_INDEX, MemoryTable, pinned_values
from tests.reference_cache.zql.ivm.pipelines import ISSUE

RANKED: Ordering = (("rank", "desc"), ("id", "asc"))


def filled(count: int = 100) -> MemoryTable:
    return MemoryTable(ISSUE, [(f"k{n:04}", f"u{n % 7}", n % 10) for n in range(count)])


def test_indexes_follow_whatever_happens_to_the_rows() -> None:
    draw = random.Random(1)
    table = filled()
    rows = {row[0]: row for row in table.rows()}
    reader = table.reader(RANKED, None)
    for number in range(500):
        choice = draw.random()
        if choice < 0.3:
            row: Row = (f"n{number}", draw.choice(["u1", "u2", None]), draw.randrange(10))
            table.apply(add(row))
            rows[row[0]] = row
        else:
            old = draw.choice(list(rows.values()))
            del rows[old[0]]
            if choice < 0.5:
                table.apply(remove(old))
            else:
                new = (old[0] if choice < 0.9 else f"m{number}", draw.choice(["u1", "u3", None]), draw.randrange(10))
                table.apply(edit(new, old))
                rows[new[0]] = new
        if number % 3 == 0:
            ordered = sorted(rows.values(), key=lambda row: (-row[2], row[0]))
            assert list(reader.rows(Request())) == ordered
            assert list(reader.rows(Request(("owner",), "u1"))) == [row for row in ordered if row[1] == "u1"]
            some = AnyOf(("owner",), ["u1", "u3"])
            assert list(reader.rows(Request(any_of=(some,)))) == [row for row in ordered if row[1] in ("u1", "u3")]
            start = draw.choice(ordered)
            after = Request(start=StartPosition(start, inclusive=False))
            assert list(reader.rows(after)) == ordered[ordered.index(start) + 1 :]


def test_an_index_nobody_reads_is_given_up_and_made_again() -> None:
    table = filled()
    reader = table.reader(RANKED, None)
    before = list(reader.rows(Request()))
    first = table.index((), RANKED)
    for _ in range(LAG_ALLOWED):
        row = before[0]
        table.apply(edit((row[0], row[1], row[2] + 1), row))
        table.apply(edit(row, (row[0], row[1], row[2] + 1)))
    assert list(reader.rows(Request())) == before
    assert table.index((), RANKED) is not first


def test_a_pinned_column_earns_an_index_by_being_asked_for() -> None:
    table = filled()
    reader = table.reader(RANKED, Simple("=", Column("owner"), Literal("u1")))
    expected = [row for row in table.reader(RANKED, None).rows(Request()) if row[1] == "u1"]
    for _ in range(SCANS_BEFORE_INDEX + 2):
        assert list(reader.rows(Request())) == expected


def test_only_equality_through_ands_pins_a_column() -> None:
    pinned = Simple("=", Column("owner"), Literal("u1"))
    assert pinned_values(pinned, ISSUE) == {"owner": "u1"}
    assert pinned_values(Simple(">", Column("rank"), Literal(1)), ISSUE) == {}
    assert pinned_values(Simple("=", Literal(1), Literal(1)), ISSUE) == {}


def test_a_failed_key_change_leaves_the_old_row() -> None:
    table = MemoryTable(ISSUE, [("a", None, 1), ("b", None, 2)])
    with pytest.raises(SourceError, match="already"):
        table.apply(edit(("b", None, 3), ("a", None, 1)))
    assert sorted(table.rows()) == [("a", None, 1), ("b", None, 2)]
