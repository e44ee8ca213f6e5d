"""Many changes of a row as one: what pipelines need to know of a stretch of the change log.

A view goes straight from one version to a later one, so what a row was in between concerns nobody. A row that was
written a hundred times is evaluated once, and one that was removed and put back is edited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from reference_cache.zql.ivm.change import Add, Edit, Remove, SourceChange, add, edit, remove
from reference_cache.zql.schema import Row

KeyOf: TypeAlias = Callable[[Row], object]


class NetChanges:
    """Changes collected by table and key. Invariant: for each row noted, what it was before the first and is now."""

    def __init__(self, key_of: Callable[[str], KeyOf]) -> None:
        self._key_of = key_of
        self._rows: dict[tuple[str, object], list[Row | None]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def note(self, table: str, change: SourceChange) -> None:
        """One more change; a change of the key is a row that goes and another that comes."""
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
        found = self._rows.get((table, key))
        if found is None:
            self._rows[table, key] = [old, new]
        else:
            found[1] = new

    def drain(self) -> Iterator[tuple[str, Add | Remove | Edit]]:
        """The changes that are left, each row once; begins anew."""
        rows, self._rows = self._rows, {}
        for (table, _), (old, new) in rows.items():
            if old is None:
                if new is not None:
                    yield table, add(new)
            elif new is None:
                yield table, remove(old)
            elif new != old:
                yield table, edit(new, old)
