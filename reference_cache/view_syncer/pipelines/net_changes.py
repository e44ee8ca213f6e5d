"""Merges the changes of each row in a range of the change log into one.

A view goes straight from one version to a later one, so states in between are skipped. A row that was written a hundred
times is evaluated once, and one that was removed and inserted again is edited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from reference_cache.zql.ivm.change import Add, Edit, Remove, SourceChange, add, edit, remove
from reference_cache.zql.schema import Row

KeyOf: TypeAlias = Callable[[Row], object]

WINDOW = 20_000
"""Rows whose changes are merged before they are pushed; bounds the memory that a large transaction takes."""


class NetChanges:
    """Changes collected by table and key. Invariant: each noted row has its state before the first change and now."""

    def __init__(self, key_of: Callable[[str], KeyOf]) -> None:
        self._key_of = key_of
        # [before, now] by table and key; `note` writes it, `drain` empties it.
        self._rows: dict[tuple[str, object], list[Row | None]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def note(self, table: str, change: SourceChange) -> None:
        """Take one more change; a change of the key counts as a remove and an add."""
        key_of = self._key_of(table)
        row = change.node.row
        if isinstance(change, Add):
            self._note(table, key_of(row), None, row)
        elif isinstance(change, Remove):
            self._note(table, key_of(row), row, None)
        else:
            old = change.old_node.row
            key, old_key = key_of(row), key_of(old)
            if key == old_key:
                self._note(table, key, old, row)
            else:
                self._note(table, old_key, old, None)
                self._note(table, key, None, row)

    def _note(self, table: str, key: object, old: Row | None, new: Row | None) -> None:
        states = self._rows.get((table, key))
        if states is None:
            self._rows[table, key] = [old, new]
        else:
            states[1] = new

    def drain(self) -> Iterator[tuple[str, Add | Remove | Edit]]:
        """Yield table and net change of each row, and start over with none.

        Plain tuples: a named one costs a few percent of what pushing the change does.
        """
        rows, self._rows = self._rows, {}
        for (table, _), (old, new) in rows.items():
            if old is None:
                if new is not None:
                    yield table, add(new)
            elif new is None:
                yield table, remove(old)
            elif new != old:
                yield table, edit(new, old)
