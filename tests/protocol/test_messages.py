import pytest

from protocol.changes import DropIndex
from protocol.messages import (
    Ack,
    AckRequested,
    Begin,
    Commit,
    Data,
    LagReport,
    LagTimings,
    Message,
    ResetRequired,
    Rollback,
    Status,
    StatusAck,
    wire_tag,
)
from protocol.specs import Identifier

TIMINGS = LagTimings(send_time_ms=1, commit_time_ms=2.5, receive_time_ms=3)

WIRE: list[tuple[Message, list[object]]] = [
    (Begin(commit_watermark="01"), ["begin", {"tag": "begin"}, {"commitWatermark": "01"}]),
    (
        Begin(commit_watermark="01", json_mode="s", skip_ack=True),
        ["begin", {"tag": "begin", "json": "s", "skipAck": True}, {"commitWatermark": "01"}],
    ),
    (
        Data(change=DropIndex(id=Identifier(schema_name="public", name="x"))),
        ["data", {"tag": "drop-index", "id": {"schema": "public", "name": "x"}}],
    ),
    (Commit(watermark="01"), ["commit", {"tag": "commit"}, {"watermark": "01"}]),
    (
        Commit(watermark="01", commit_time_ms=1.5),
        ["commit", {"tag": "commit", "commitTimeMs": 1.5}, {"watermark": "01"}],
    ),
    (Rollback(), ["rollback", {"tag": "rollback"}]),
    (Status(watermark="01"), ["status", {}, {"watermark": "01"}]),
    (
        Status(watermark="01", ack=False, lag_report=LagReport(last_timings=TIMINGS, next_send_time_ms=9)),
        [
            "status",
            {
                "ack": False,
                "lagReport": {
                    "lastTimings": {"sendTimeMs": 1, "commitTimeMs": 2.5, "receiveTimeMs": 3},
                    "nextSendTimeMs": 9,
                },
            },
            {"watermark": "01"},
        ],
    ),
    (
        ResetRequired(message="gap", error_details={"oldest": "0a"}),
        ["control", {"tag": "reset-required", "message": "gap", "errorDetails": {"oldest": "0a"}}],
    ),
    (
        AckRequested(latest_upstream_watermark="01"),
        ["control", {"tag": "ack-requested", "latestUpstreamWatermark": "01"}],
    ),
    (StatusAck(watermark="01", tag="commit"), ["status", {"tag": "commit"}, {"watermark": "01"}]),
    (StatusAck(watermark="01", ack=True), ["status", {"ack": True}, {"watermark": "01"}]),
    (Ack(watermark="01"), ["ack", {"watermark": "01"}]),
]


@pytest.mark.parametrize(("message", "wire"), WIRE)
def test_a_message_travels_as_one_array_and_comes_back(message: Message, wire: list[object]) -> None:
    assert message.to_wire() == wire
    assert type(message).model_validate(wire) == message


@pytest.mark.parametrize(("message", "wire"), WIRE)
def test_a_message_and_its_array_have_the_same_tag(message: Message, wire: list[object]) -> None:
    assert wire_tag(message) == wire_tag(wire) is not None


def test_a_control_message_cannot_pass_for_another() -> None:
    assert wire_tag(["control", {"tag": "rollback"}]) == "control:rollback"


@pytest.mark.parametrize("wire", [[], {}, None, [1], "begin"])
def test_what_is_no_message_has_no_tag(wire: object) -> None:
    assert wire_tag(wire) is None


def test_a_status_is_echoed_unless_it_says_no() -> None:
    assert Status(watermark="01").wants_ack
    assert Status(watermark="01", ack=True).wants_ack
    assert not Status(watermark="01", ack=False).wants_ack


def test_a_watermark_in_the_second_element_does_not_count() -> None:
    wire = ["status", {"watermark": "0z"}, {"watermark": "01"}]
    assert StatusAck.model_validate(wire).watermark == "01"
