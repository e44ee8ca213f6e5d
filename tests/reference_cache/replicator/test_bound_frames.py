"""The quick way to begins and commits gives what the codec gives, or leaves the message to it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol import codec
from protocol.errors import CodecError
from protocol.messages import Begin, Commit
from reference_cache.replicator.bound_frames import BoundFrames

WATERMARKS = st.sampled_from(["02", "1zz", "00", "0", "ff", "2100", "100", "0a.01", "0A", "", "a}]"])
TIMES = st.none() | st.integers(-5, 10**20) | st.floats(allow_nan=False)
EXTRAS = st.dictionaries(st.sampled_from(["json", "skipAck", "more"]), st.sampled_from(["p", "s", True, "x", {}]))
SEPARATORS = st.sampled_from([(",", ":"), (", ", ": ")])


def _text(message: list[Any], separators: tuple[str, str]) -> bytes:
    return json.dumps(message, separators=separators).encode()


@given(st.lists(st.tuples(EXTRAS, WATERMARKS), min_size=1, max_size=3), SEPARATORS)
def test_a_recognised_begin_is_the_one_that_the_codec_decodes(
    begins: list[tuple[dict[str, Any], str]], separators: tuple[str, str]
) -> None:
    frames = BoundFrames()
    for extra, watermark in begins:
        data = _text(["begin", {"tag": "begin", **extra}, {"commitWatermark": watermark}], separators)
        try:
            found = frames.begin(data)
        except CodecError:
            with pytest.raises(CodecError):
                codec.decode_downstream(data)
            continue
        if found is not None:
            decoded = codec.decode_downstream(data)
            assert isinstance(decoded, Begin)
            assert found[0].model_copy(update={"commit_watermark": found[1]}) == decoded


@example(2**53, "02", False, (",", ":"))
@given(TIMES, WATERMARKS, st.booleans(), SEPARATORS)
def test_a_recognised_commit_is_the_one_that_the_codec_decodes(
    time: float | None, watermark: str, more: bool, separators: tuple[str, str]
) -> None:
    payload: dict[str, Any] = {"tag": "commit"} | ({} if time is None else {"commitTimeMs": time})
    data = _text(["commit", payload | ({"more": 1} if more else {}), {"watermark": watermark}], separators)
    found = BoundFrames().commit(data)
    if found is not None:
        decoded = codec.decode_downstream(data)
        assert isinstance(decoded, Commit)
        assert found == (decoded.watermark, decoded.commit_time_ms)


def test_what_an_endpoint_sends_is_recognised() -> None:
    frames = BoundFrames()
    begin = codec.encode(Begin(commit_watermark="02"))
    assert frames.begin(begin) == (Begin(commit_watermark="02"), "02")
    assert frames.begin(begin.replace(b"02", b"03")) == (Begin(commit_watermark="02"), "03")
    assert frames.commit(codec.encode(Commit(watermark="02", commit_time_ms=1700000000001.25))) == (
        "02",
        1700000000001.25,
    )
    assert frames.commit(codec.encode(Commit(watermark="02"))) == ("02", None)


def test_a_watermark_of_another_form_is_left_to_the_codec() -> None:
    assert BoundFrames().begin(b'["begin",{"tag":"begin"},{"commitWatermark":"zz"}]') is None


def test_many_kinds_of_begin_do_not_fill_memory() -> None:
    frames = BoundFrames()
    for number in range(200):
        data = f'["begin",{{"tag":"begin","more":{number}}},{{"commitWatermark":"02"}}]'.encode()
        assert frames.begin(data) is not None
    assert len(frames._known) <= 64
