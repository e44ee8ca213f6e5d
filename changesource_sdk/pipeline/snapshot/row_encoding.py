"""Rows of a partition as insert frames, without those that no consumer can hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import orjson

from changesource_sdk.adapter import BadRow, Insert, Row
from changesource_sdk.errors import ChangesourceError, InvalidChange
from changesource_sdk.pipeline.encoding.bad_values import BadValueRules, BadValues
from changesource_sdk.pipeline.encoding.encode import TableEncoder
from changesource_sdk.schema import Table

BATCH_ROWS = 256
LEFT_OUT = b""
"""What `row_json` gives for a row that is left out."""


class RowEncoding:
    """Encodes the rows of one table in a snapshot; `letters` are about those that were left out or changed."""

    def __init__(self, table: Table, rules: BadValueRules) -> None:
        self._table = TableEncoder(table)
        self._bad_values = BadValues(rules)

    def letters(self) -> tuple[str, ...]:
        """The dead letters so far, as texts."""
        return tuple(letter.to_text() for letter in self._bad_values.letters())

    @property
    def left_out(self) -> int:
        """How many rows were left out."""
        return sum(letter.outcome == "left out" for letter in self._bad_values.letters())

    def inserts(self, rows: Iterable[Row]) -> Iterator[tuple[int, bytes]]:
        """Insert frames, as (number of rows, their frames) a batch at a time. Raises what must stop the snapshot."""
        remaining = iter(rows)
        while batch := list(islice(remaining, BATCH_ROWS)):
            try:
                frames = self._table.insert_batch(batch)
            except InvalidChange:
                yield from self.json_inserts([[self.row_json(row) for row in batch]])
            else:
                yield len(batch), frames

    def row_json(self, row: Row | BadRow) -> bytes:
        """A whole row as its JSON object, checked; `LEFT_OUT` if it is left out."""
        if isinstance(row, BadRow):
            return self._instead_of(row, row.error)
        try:
            return self._table.row_json(row)
        except InvalidChange as error:
            return self._instead_of(Insert(self._table.table.full_name, row), error)

    def json_inserts(self, batches: Iterable[Sequence[bytes]]) -> Iterator[tuple[int, bytes]]:
        """Insert frames of rows that are JSON objects already; `LEFT_OUT` is none of them."""
        for objects in batches:
            present = [each for each in objects if each is not LEFT_OUT and each]
            try:
                framed = list(self._table.json_inserts([present]))
            except InvalidChange:
                framed = [pair for each in present for pair in self._framed(each)]
            yield from framed

    def _framed(self, body: bytes) -> Iterator[tuple[int, bytes]]:
        """One row, unless it is too large for a message."""
        try:
            yield from list(self._table.json_inserts([[body]]))
        except InvalidChange as error:
            self._instead_of(Insert(self._table.table.full_name, orjson.loads(body)), error)

    def _instead_of(self, change: Insert | BadRow, error: ChangesourceError) -> bytes:
        for instead in self._bad_values.instead_of(self._table, change, error, error):
            if isinstance(instead, Insert):
                return self._table.row_json(instead.row)
        return LEFT_OUT
