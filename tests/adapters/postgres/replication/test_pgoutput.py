"""Messages of pgoutput, byte by byte."""

from __future__ import annotations

from struct import pack

import pytest

from adapters.postgres.replication.pgoutput import (
    UNCHANGED,
    BeginMessage,
    CommitMessage,
    Deleted,
    Ignored,
    Inserted,
    LogicalMessage,
    RelationColumn,
    RelationMessage,
    Truncated,
    Updated,
    decode,
)
from changesource_sdk.errors import AdapterError


def _text(value: str) -> bytes:
    data = value.encode()
    return b"t" + pack(">i", len(data)) + data


def _tuple(*values: bytes) -> bytes:
    return pack(">H", len(values)) + b"".join(values)


ROW = _tuple(_text("1"), b"n", b"u", _text("é"))
VALUES = ["1", None, UNCHANGED, "é"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"B" + pack(">qqI", 0x10, 1_500_000, 7), BeginMessage(0x10, 946_684_801_500.0, 7)),
        (b"C\0" + pack(">qqq", 0x10, 0x20, 0), CommitMessage(0x10, 0x20, 946_684_800_000.0)),
        (b"I" + pack(">I", 5) + b"N" + ROW, Inserted(5, VALUES)),
        (b"U" + pack(">I", 5) + b"N" + ROW, Updated(5, None, VALUES)),
        (b"U" + pack(">I", 5) + b"K" + _tuple(_text("0"), b"n") + b"N" + ROW, Updated(5, ["0", None], VALUES)),
        (b"U" + pack(">I", 5) + b"O" + ROW + b"N" + ROW, Updated(5, VALUES, VALUES)),
        (b"D" + pack(">I", 5) + b"K" + ROW, Deleted(5, VALUES)),
        (b"T" + pack(">iBII", 2, 1, 5, 6), Truncated((5, 6))),
        (b"M\1" + pack(">q", 9) + b"a/b\0" + pack(">i", 3) + b"xyz", LogicalMessage(True, "a/b", b"xyz")),
        (b"O" + pack(">q", 1) + b"origin\0", Ignored()),
        (b"Y" + pack(">I", 1) + b"public\0mood\0", Ignored()),
    ],
)
def test_each_message_is_read(data: bytes, message: object) -> None:
    assert decode(data) == message


def test_a_relation_is_read_with_its_columns() -> None:
    columns = b"\1id\0" + pack(">Ii", 23, -1) + b"\0Name\0" + pack(">Ii", 1043, 24)
    data = b"R" + pack(">I", 7) + b"public\0Item\0d" + pack(">H", 2) + columns
    found = (RelationColumn("id", 23, -1, True), RelationColumn("Name", 1043, 24, False))
    assert decode(data) == RelationMessage(7, "public", "Item", "d", found)


@pytest.mark.parametrize("data", [b"S1234", b"I" + pack(">I", 5) + b"N" + _tuple(b"b" + pack(">i", 1) + b"x")])
def test_what_was_not_asked_for_is_refused(data: bytes) -> None:
    with pytest.raises(AdapterError, match="the server sent"):
        decode(data)
