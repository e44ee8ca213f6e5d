"""The quick way from bytes to rows gives what the codec gives, however a source writes its JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import codec
from protocol.errors import CodecError
from protocol.messages import Data
from reference_cache.replicator.row_frames import RowFrames, apply_change

Call = tuple[object, ...]


class Recorder:
    """Takes the place of the tables, and records the calls."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._table = ""

    def rows(self, table: str) -> Recorder:
        self._table = table
        return self

    def insert(self, *arguments: object) -> None:
        self.calls.append(("insert", self._table, *arguments))

    def insert_all(self, rows: list[object], columns: object) -> None:
        for row in rows:
            self.insert(row, columns)

    def update(self, *arguments: object) -> None:
        self.calls.append(("update", self._table, *arguments))

    def delete(self, *arguments: object) -> None:
        self.calls.append(("delete", self._table, *arguments))

    def change(self, change: object) -> None:
        self.calls.append(("change", change))


RELATIONS = [
    {"schema": "public", "name": "item", "rowKey": {"columns": ["id"]}},
    {"schema": "s", "name": 'new":', "rowKey": {"columns": ["key", "new"], "type": "index"}, "extra": {"new": 1}},
    {"schema": "public", "name": "item", "keyColumns": ["id"], "replicaIdentity": "full"},
]
names = st.sampled_from(["id", "new", "key", 'a"b', "tag", "}]"])
scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=5)
rows = st.dictionaries(names, scalars | st.lists(scalars, max_size=2) | st.dictionaries(names, scalars, max_size=2))


@st.composite
def changes(draw: st.DrawFn) -> dict[str, Any]:
    tag = draw(st.sampled_from(["insert", "update", "delete"]))
    fields: dict[str, Any] = {"tag": tag, "relation": draw(st.sampled_from(RELATIONS))}
    if tag != "insert":
        fields["key"] = draw(rows if tag == "delete" else rows | st.none())
    if tag != "delete":
        fields["new"] = draw(rows)
    if draw(st.booleans()):
        fields["more"] = draw(scalars)
    return dict(draw(st.permutations(list(fields.items()))))


@settings(deadline=None)
@given(st.lists(changes(), min_size=1, max_size=6), st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : ")]))
def test_both_ways_do_the_same(messages: list[dict[str, Any]], separators: tuple[str, str]) -> None:
    quick, careful, frames = Recorder(), Recorder(), RowFrames()
    encoded = [json.dumps(["data", change], separators=separators).encode() for change in messages]
    frames.apply_all(encoded, quick)  # type: ignore[arg-type]
    for data in encoded:
        message = codec.decode_downstream(data)
        assert isinstance(message, Data)
        apply_change(message.change, careful)  # type: ignore[arg-type]
    assert quick.calls == careful.calls


@pytest.mark.parametrize(
    "text",
    [
        '["data",{"tag":"insert","relation":{"schema":"public","name":"item","rowKey":{"columns":["id"]}},"new":1}]',
        '["data",{"tag":"insert","relation":{"schema":"public","name":"item","rowKey":{"columns":["id"]}},"new":{}]',
        '["data",{"tag":"insert","relation":{"schema":"public","name":"item"},"new":{}}]',
        '["data",{"tag":"delete","relation":{"schema":"public","name":"item","rowKey":{"columns":["id"]}},"new":{}}]',
        '["data",{"tag":"update","relation":{"schema":"public","name":"item","rowKey":{"columns":["id"]}},"new":{}}]',
    ],
)
def test_what_the_codec_refuses_is_refused(text: str) -> None:
    recorder = Recorder()
    with pytest.raises(CodecError):
        RowFrames().apply_all([text.encode()], recorder)  # type: ignore[arg-type]
    assert recorder.calls == []
