"""Applies data messages from their bytes, without decoding the whole message.

An initial sync has millions of messages that differ only in their row. Everything before the row (the tag, the
relation) is the same for a whole table, so the codec validates it once, and then its bytes are recognised. Per message
only the row is parsed, and consecutive inserts into one table are parsed together. Messages that are not recognised
are decoded with the codec.

Contract: the effect is that of decoding each message and applying its change.
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
"""Completes a prefix to a message that the codec can validate."""

_MAX_KNOWN = 4096
"""How many prefixes are remembered; a source with more tables is only slower."""


@dataclass(frozen=True, slots=True)
class _Prefix:
    """The meaning of the bytes before the row."""

    tag: Literal["insert", "update", "delete"]
    table: str
    columns: KeyColumns


class RowFrames:
    """Applies data messages of one connection."""

    def __init__(self) -> None:
        # Prefix bytes -> meaning, None if the codec must decode such messages; at most `_MAX_KNOWN`. Valid for the
        # whole connection, because a prefix contains the whole relation.
        self._known: dict[bytes, _Prefix | None] = {}

    def apply_all(self, messages: Sequence[bytes], target: ChangeProcessor) -> None:
        """Apply the changes in data messages, in order."""
        index, end = 0, len(messages)
        while index < end:
            count = self.apply_inserts(messages, index, target)
            if not count:
                self.apply(messages[index], target)
            index += count or 1

    def apply_inserts(self, messages: Sequence[bytes], index: int, target: ChangeProcessor) -> int:
        """Apply the consecutive inserts into one table from `index` on; returns how many messages that were.

        Returns 0, and applies nothing, if the first is no insert or a row cannot be parsed.
        """
        start = _row_start(messages[index])
        prefix = self._prefix(messages[index][:start]) if start > 0 else None
        if prefix is None or prefix.tag != "insert":
            return 0
        start += len(_NEW)
        text = messages[index][:start]
        same = takewhile(lambda data: data.startswith(text), islice(messages, index, None))
        rows = [data[start:-2] for data in same]
        try:
            parsed = values.loads(b"[" + b",".join(rows) + b"]")
        except CodecError:
            return 0
        if not isinstance(parsed, list) or len(parsed) != len(rows) or set(map(type, parsed)) != {dict}:
            return 0
        target.rows(prefix.table).insert_all(parsed, prefix.columns)
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
        prefix = self._prefix(data[:start])
        if prefix is None:
            return False
        try:
            body = values.loads(b"{" + data[start:-1])
        except CodecError:
            return False
        return isinstance(body, dict) and _apply_body(prefix, body, target)

    def _prefix(self, text: bytes) -> _Prefix | None:
        try:
            return self._known[text]
        except KeyError:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            prefix = self._known[text] = _decode_prefix(text)
            return prefix


def _row_start(data: bytes) -> int:
    """Index of the first of the fields `new` and `key`; -1 if there is none."""
    new, key = data.find(_NEW), data.find(_KEY)
    return new if key < 0 or 0 <= new < key else key


def _decode_prefix(text: bytes) -> _Prefix | None:
    try:
        message = codec.decode_downstream(text + _REST)
    except CodecError:
        return None
    match message:
        case Data(change=Insert() | Update() | Delete() as change) if _is_bare(change):
            relation = change.relation
            return _Prefix(change.tag, relation.replica_name, key_columns(relation))
        case _:
            return None


def _is_bare(change: Insert | Update | Delete) -> bool:
    """Whether the change has only the empty fields of `_REST`; otherwise `new` or `key` is in the prefix itself."""
    return not getattr(change, "key", None) and not getattr(change, "new", None)


def _apply_body(prefix: _Prefix, body: dict[str, object], target: ChangeProcessor) -> bool:
    """Apply the row's fields if they are exactly those of the tag."""
    match prefix.tag, body:
        case "insert", {"new": dict() as new} if len(body) == 1:
            target.rows(prefix.table).insert(new, prefix.columns)
        case "update", {"key": dict() | None as key, "new": dict() as new} if len(body) == 2:
            target.rows(prefix.table).update(key, new, prefix.columns)
        case "delete", {"key": dict() as key} if len(body) == 1:
            target.rows(prefix.table).delete(key, prefix.columns)
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
    """The key columns of a relation; None if the table's own key is to be used."""
    key = relation.key
    return None if key.type == "full" else key.columns
