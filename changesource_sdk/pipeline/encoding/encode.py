"""Row changes to framed bytes, one compiled encoder per table.

The frames are those the consumer gets, so a change is encoded once, however many consumers there are. Everything
but the row itself is a constant of the table and prepared beforehand. A `TableEncoder` is made from a `Table` and
nothing else: it works the same in a task on another machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import orjson

from changesource_sdk.adapter import Row
from changesource_sdk.contract import no_row
from changesource_sdk.errors import InvalidChange
from changesource_sdk.pipeline.encoding.rows import RowShape
from changesource_sdk.pipeline.encoding.validate import known_column
from changesource_sdk.schema import Table
from protocol.framing import frame

MAX_MESSAGE_BYTES = 100 * 1024 * 1024
"""The largest message the official consumer takes."""

_BATCH_ROWS = 256
_KEPT_HEADS = 4096
_END = b"}]"


class TableEncoder:
    """Encodes row changes of one table as it is now; a schema change of the table calls for a new encoder."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._full = RowShape(table.full_name, table.columns)
        self._width = len(table.columns)
        self._key = RowShape(table.full_name, [known_column(table, name) for name in table.key])
        # Shapes of updates with some of the columns, by their names; made by `_present` when first needed.
        self._partial: dict[tuple[str, ...], RowShape] = {}
        self.relation = orjson.dumps(
            {"schema": table.schema, "name": table.name, "rowKey": {"columns": list(table.key)}}
        )
        # What precedes a row in an insert frame, by the row's size; at most `_KEPT_HEADS`, added by `_new_insert_head`.
        self._insert_heads: dict[int, bytes] = {}
        self._insert = b'["data",{"tag":"insert","relation":%s,"new":' % self.relation
        self._update = b'["data",{"tag":"update","relation":%s,"key":' % self.relation
        self._delete = b'["data",{"tag":"delete","relation":%s,"key":' % self.relation

    def insert(self, row: Row) -> bytes:
        """An `insert` frame; optional columns that are missing become null."""
        return self._framed(self._insert + self._whole(row) + _END)

    def update(self, row: Row, old_key: Row | None = None) -> bytes:
        """An `update` frame; columns that are missing keep their value, key columns may not be missing."""
        self._needs_key("updated")
        key = b"null" if old_key is None else self._key_json(old_key)
        return self._framed(b"".join((self._update, key, b',"new":', self._present(row), _END)))

    def delete(self, key: Row) -> bytes:
        """A `delete` frame; columns beyond the key are ignored."""
        self._needs_key("deleted")
        return self._framed(self._delete + self._key_json(key) + _END)

    def inserts(self, rows: Iterable[Row]) -> Iterator[tuple[int, bytes]]:
        """Many `insert` frames, as (number of rows, their frames) a batch at a time."""
        remaining = iter(rows)
        while batch := list(islice(remaining, _BATCH_ROWS)):
            yield len(batch), self.insert_batch(batch)

    def insert_batch(self, rows: list[Row]) -> bytes:
        """The frames of these rows, the same bytes as `insert` row by row."""
        return self._framed_objects(map(self._whole, rows))

    def row_json(self, row: Row) -> bytes:
        """A whole row as its JSON object, checked; optional columns that are missing become null."""
        return self._whole(row)

    def json_inserts(self, batches: Iterable[Sequence[bytes]]) -> Iterator[tuple[int, bytes]]:
        """Many `insert` frames of rows that are JSON objects already, as (number of rows, their frames)."""
        for objects in batches:
            yield len(objects), self._framed_objects(objects)

    def _framed_objects(self, objects: Iterable[bytes]) -> bytes:
        """Insert frames around rows: all but the row depends on its length only."""
        heads = self._insert_heads
        pieces: list[bytes] = []
        for body in objects:
            size = len(body)
            head = heads.get(size) or self._new_insert_head(size)
            pieces += (head, body, _END)
        return b"".join(pieces)

    def _new_insert_head(self, size: int) -> bytes:
        """The frame header and the constant part before a row of this many bytes."""
        framed = self._framed(self._insert + bytes(size) + _END)
        head = framed[: len(framed) - size - len(_END)]
        if len(self._insert_heads) < _KEPT_HEADS:
            self._insert_heads[size] = head
        return head

    def _whole(self, row: Row) -> bytes:
        try:
            if len(row) == self._width:
                return self._full.to_json(row)
        except KeyError:
            pass
        except TypeError:
            if isinstance(row, Mapping):
                raise
        except InvalidChange as error:
            raise self._with_key(error, row) from error
        self._refuse_unknown(row)
        return self._checked(self._full, {name: row.get(name) for name in self._full.names})

    def _checked(self, shape: RowShape, row: Row) -> bytes:
        try:
            return shape.to_json(row)
        except InvalidChange as error:
            raise self._with_key(error, row) from error

    def _with_key(self, error: InvalidChange, row: Row) -> InvalidChange:
        """The same error, saying which row; the key is the only data that an error may contain."""
        key = self.shown_key(row)
        where = f"{error.where}, row {key}" if key else error.where
        return InvalidChange(error.code, error.message, where, error.fix, error.column)

    def shown_key(self, row: Row) -> str:
        """The key of a row for people, values cut at 60 characters; "" if the table has none."""
        if not isinstance(row, Mapping):
            return ""
        return ", ".join(f"{name}={row.get(name)!r:.60}" for name in self.table.key)

    def wire_key(self, row: Row) -> list[object] | None:
        """The values of the key as they travel; None if the row has no key that could be sent."""
        try:
            return list(orjson.loads(self._key_json(row)).values()) if self.table.key else None
        except (InvalidChange, KeyError, TypeError):
            return None

    def is_whole(self, row: Row) -> bool:
        """Whether the row has every column."""
        return row.keys() >= set(self._full.names)

    def _present(self, row: Row) -> bytes:
        if len(row) == self._width:
            return self._whole(row)
        names = tuple(row)
        shape = self._partial.get(names)
        if shape is None:
            self._refuse_unknown(row)
            self._refuse_missing_key(row)
            shape = RowShape(self.table.full_name, [known_column(self.table, name) for name in names])
            self._partial[names] = shape
        return self._checked(shape, row)

    def _key_json(self, row: Row) -> bytes:
        try:
            return self._key.to_json(row if len(row) == len(self.table.key) else {n: row[n] for n in self.table.key})
        except (KeyError, TypeError):
            self._refuse_missing_key(row)
            raise
        except InvalidChange as error:
            raise self._with_key(error, row) from error

    def _refuse_unknown(self, row: Row) -> None:
        if not isinstance(row, Mapping):
            raise no_row(self.table.full_name, row)
        for name in row:
            known_column(self.table, name)

    def _refuse_missing_key(self, row: Row) -> None:
        if not isinstance(row, Mapping):
            raise no_row(self.table.full_name, row)
        for name in self.table.key:
            if name not in row:
                raise InvalidChange(
                    "key-missing",
                    f"the key column {name!r} is missing",
                    f"table {self.table.full_name}",
                    f"give all key columns: {', '.join(self.table.key)}",
                )

    def _needs_key(self, verb: str) -> None:
        if not self.table.key:
            raise InvalidChange(
                "no-key",
                f"rows of a table without key cannot be {verb}",
                f"table {self.table.full_name}",
                "declare a key, or send Truncate and all rows",
            )

    def _framed(self, payload: bytes) -> bytes:
        if len(payload) > MAX_MESSAGE_BYTES:
            raise InvalidChange(
                "row-too-large",
                f"a row of {len(payload)} bytes exceeds the {MAX_MESSAGE_BYTES} a consumer takes in one message",
                f"table {self.table.full_name}",
                "shorten it in the adapter, or leave the large column out",
            )
        return frame(payload)


def truncate_frame(encoders: Iterable[TableEncoder]) -> bytes:
    """One `truncate` frame for several tables."""
    relations = b",".join(encoder.relation for encoder in encoders)
    return frame(b'["data",{"tag":"truncate","relations":[%s]}]' % relations)
