"""Messages of a stream, as lines for people."""

from __future__ import annotations

import pytest

from changesource_sdk.checking.read_stream import describe_message


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (["begin", {"tag": "begin"}, {"commitWatermark": "07"}], "begin 07"),
        (["status", {}, {"watermark": "07"}], "status 07"),
        (["control", {"tag": "reset-required", "message": "gone"}], "reset-required gone"),
        (["data", {"tag": "truncate", "relations": [{"schema": "public", "name": "a"}]}], "  truncate a"),
        (["data", {"tag": "drop-index", "id": {"schema": "s", "name": "i"}}], "  drop-index s.i"),
    ],
)
def test_messages_read_as_lines(message: list[object], line: str) -> None:
    assert describe_message(message) == line
