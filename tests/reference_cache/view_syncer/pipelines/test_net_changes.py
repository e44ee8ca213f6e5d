"""However often rows are written, the net changes lead from the same rows to the same rows."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reference_cache.view_syncer.pipelines.net_changes import NetChanges
from reference_cache.zql.ivm.change import Add, Edit, SourceChange, add, edit, remove

KEYS = st.integers(0, 3)
ROWS = st.tuples(KEYS, st.integers(0, 2))


def net(changes: list[SourceChange]) -> list[tuple[str, Any]]:
    collected = NetChanges(lambda table: lambda row: row[0])
    for change in changes:
        collected.note("item", change)
    return list(collected.drain())


def applied(rows: dict[int, tuple[int, int]], change: SourceChange) -> dict[int, tuple[int, int]]:
    after = dict(rows)
    if not isinstance(change, Add):
        old = change.old_node.row if isinstance(change, Edit) else change.node.row
        assert after.pop(old[0]) == old
    if isinstance(change, Add | Edit):
        assert change.node.row[0] not in after
        after[change.node.row[0]] = change.node.row
    return after


@given(st.lists(ROWS, max_size=4, unique_by=lambda row: row[0]), st.data())
def test_net_changes_lead_to_the_same_rows_each_row_once(rows: list[tuple[int, int]], data: st.DataObject) -> None:
    start = now = {row[0]: row for row in rows}
    changes: list[SourceChange] = []
    for new in data.draw(st.lists(ROWS, max_size=12)):
        old = data.draw(st.sampled_from([None, *now.values()]))
        if old is None and new[0] not in now:
            changes.append(add(new))
        elif old is not None and data.draw(st.booleans()):
            changes.append(remove(old))
        elif old is not None and (new[0] not in now or new[0] == old[0]):
            changes.append(edit(new, old))
        else:
            continue
        now = applied(now, changes[-1])
    found = net(changes)
    after = start
    for _, change in found:
        after = applied(after, change)
    assert after == now
    keys = [change.node.row[0] for _, change in found]
    assert len(keys) == len(set(keys))


def test_a_row_that_is_removed_and_put_back_is_edited_and_one_that_ends_as_it_was_is_not_mentioned() -> None:
    assert [type(change) for _, change in net([remove((1, 0)), add((1, 5))])] == [Edit]
    assert net([edit((1, 5), (1, 0)), edit((1, 0), (1, 5))]) == []
    assert net([add((1, 0)), remove((1, 0))]) == []
