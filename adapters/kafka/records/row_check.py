"""Finds rows that no consumer can hold while the record that brought them is still known."""

from __future__ import annotations

from collections.abc import Iterable

from changesource_sdk import Change, Delete, Insert, Table, Truncate, Update
from changesource_sdk.toolkit import TableEncoder


class RowCheck:
    """Validates changes with the pipeline's own encoder."""

    def __init__(self) -> None:
        self._encoders: dict[str, TableEncoder] = {}  # by table name; replaced when the table got columns

    def check(self, table: Table, changes: Iterable[Change]) -> None:
        """Raise `InvalidChange` for a change that does not suit its table."""
        encoder = self._encoders.get(table.full_name)
        if encoder is None or encoder.table is not table:
            encoder = self._encoders[table.full_name] = TableEncoder(table)
        for change in changes:
            match change:
                case Insert(_, row):
                    encoder.insert(row)
                case Update(_, row, old_key):
                    encoder.update(row, old_key)
                case Delete(_, key):
                    encoder.delete(key)
                case Truncate():
                    pass
