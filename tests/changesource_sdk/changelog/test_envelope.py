"""Taking a transaction's envelope off gives its data frames back, whatever they hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from changesource_sdk.changelog.envelope import begin_frame, commit_frame, data_frames
from protocol.framing import frame

LOOKS_LIKE_A_COMMIT = b'["data",{"tag":"insert","new":{"a":"[\\"commit\\",{\\"tag\\":\\"commit\\"}"}}]'


@given(
    payloads=some.lists(some.sampled_from([b"[]", b"x" * 125, b"x" * 126, b"x" * 70_000, LOOKS_LIKE_A_COMMIT])),
    watermark=some.sampled_from(["01", "9ho9eu3gkbe", "z" + "z" * 36, "z" + "z" * 36 + ".z" + "z" * 36]),
    time_ms=some.none() | some.floats(0, 1e15) | some.integers(0, 2**50),
)
def test_data_frames_come_back(payloads: list[bytes], watermark: str, time_ms: float | None) -> None:
    data = b"".join(map(frame, payloads))
    assert data_frames(begin_frame(watermark) + data + commit_frame(watermark, time_ms)) == data
