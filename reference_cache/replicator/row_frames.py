"""Changes to rows, from the bytes of a message straight to the table they belong to.

An initial sync is millions of messages that differ only in their row. All that comes before the row (the tag, the
relation) is the same for a whole table, so it is validated once, by the codec, and then recognised by its bytes; per
message only the row itself is parsed, and the rows of inserts that follow each other are parsed together. Whatever is
not recognised, or not quite as expected, takes the codec's way.

Contract: the outcome is that of decoding the messages and processor their changes; only faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Literal

from protocol import codec, values
from protocol.changes import Change, Delete, Insert, Update
from protocol.errors import CodecError
from protocol.messages import Data
from protocol.specs import Relation
from reference_cache.replica.writing.change_processor import ChangeProcessor
from reference_cache.replica.writing.table_rows import KeyColumns

DATA = b'["data",'
_NEW, _KEY = b'"new":', b'"key":'
_REST = b'"key":{},"new":{}}]'
"""Completes a beginning to a message, so that the codec can judge it."""

_MAX_KNOWN = 4096
"""Beginnings that are remembered; a source with more tables than this is merely slower."""


@dataclass(frozen=True, slots=True)
class _Beginning:
    """What the bytes before the row say."""

    tag: Literal["insert", "update", "delete"]
    table: str
    columns: KeyColumns


class RowFrames:
    """Applies data messages. Remembers the beginnings it has seen, which mean the same in every transaction."""

    def __init__(self) -> None:
        self._known: dict[bytes, _Beginning | None] = {}

    def apply_all(self, messages: Sequence[bytes], target: ChangeProcessor) -> None:
        """Apply the changes in data messages, in order."""
        place, end = 0, len(messages)
        while place < end:
            count = self.apply_inserts(messages, place, target)
            if not count:
                self.apply(messages[place], target)
            place += count or 1

    def apply_inserts(self, messages: Sequence[bytes], place: int, target: ChangeProcessor) -> int:
        """Apply the inserts into one table that begin here; how many messages that was, 0 if none or not all are."""
        start = _row_start(messages[place])
        beginning = self._beginning(messages[place][:start]) if start > 0 else None
        if beginning is None or beginning.tag != "insert":
            return 0
        start += len(_NEW)
        text = messages[place][:start]
        same = takewhile(lambda data: data.startswith(text), islice(messages, place, None))
        rows = [data[start:-2] for data in same]
        try:
            parsed = values.loads(b"[" + b",".join(rows) + b"]")
        except CodecError:
            return 0
        if not isinstance(parsed, list) or len(parsed) != len(rows) or set(map(type, parsed)) != {dict}:
            return 0
        target.rows(beginning.table).insert_all(parsed, beginning.columns)
        return len(rows)

    def apply(self, data: bytes, target: ChangeProcessor) -> None:
        """Apply the change in a data message."""
        if not self._apply_row(data, target):
            message = codec.decode_downstream(data)
            if not isinstance(message, Data):
                raise CodecError(f"{message.name} where a change was expected")
            apply_change(message.change, target)

    def _apply_row(self, data: bytes, target: ChangeProcessor) -> bool:
        start = _row_start(data)
        if start < 0:
            return False
        beginning = self._beginning(data[:start])
        if beginning is None:
            return False
        try:
            body = values.loads(b"{" + data[start:-1])
        except CodecError:
            return False
        return isinstance(body, dict) and _apply_body(beginning, body, target)

    def _beginning(self, text: bytes) -> _Beginning | None:
        try:
            return self._known[text]
        except KeyError:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            found = self._known[text] = _judge(text)
            return found


def _row_start(data: bytes) -> int:
    """Where the first of the row's fields begins; -1 if there is none."""
    new, key = data.find(_NEW), data.find(_KEY)
    return new if key < 0 or 0 <= new < key else key


def _judge(text: bytes) -> _Beginning | None:
    try:
        message = codec.decode_downstream(text + _REST)
    except CodecError:
        return None
    match message:
        case Data(change=Insert() | Update() | Delete() as change) if _is_bare(change):
            relation = change.relation
            return _Beginning(change.tag, relation.replica_name, key_columns(relation))
        case _:
            return None


def _is_bare(change: Insert | Update | Delete) -> bool:
    """Whether what completed the beginning is all that the change has; else the row's fields were not found."""
    return not getattr(change, "key", None) and not getattr(change, "new", None)


def _apply_body(beginning: _Beginning, body: dict[str, object], target: ChangeProcessor) -> bool:
    """Apply the row's fields if they are exactly those of the tag."""
    match beginning.tag, body:
        case "insert", {"new": dict() as new} if len(body) == 1:
            target.rows(beginning.table).insert(new, beginning.columns)
        case "update", {"key": dict() | None as key, "new": dict() as new} if len(body) == 2:
            target.rows(beginning.table).update(key, new, beginning.columns)
        case "delete", {"key": dict() as key} if len(body) == 1:
            target.rows(beginning.table).delete(key, beginning.columns)
        case _:
            return False
    return True


def apply_change(change: Change, target: ChangeProcessor) -> None:
    """Apply a decoded change."""
    match change:
        case Insert():
            target.rows(change.relation.replica_name).insert(change.new, key_columns(change.relation))
        case Update():
            target.rows(change.relation.replica_name).update(change.key, change.new, key_columns(change.relation))
        case Delete():
            target.rows(change.relation.replica_name).delete(change.key, key_columns(change.relation))
        case _:
            target.change(change)


def key_columns(relation: Relation) -> KeyColumns:
    """The columns that a relation names as its key; None where the table's own key is to be used."""
    key = relation.key
    return None if key.type == "full" else key.columns
