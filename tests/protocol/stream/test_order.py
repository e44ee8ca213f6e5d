from protocol.messages import AckRequested, Begin, Commit, ResetRequired, Rollback, Status
from protocol.stream import Stream
from protocol.stream.handshake import Handshake

LIVE = Handshake("shipped", "zero", 0, frozenset(), "0a", "01")
INITIAL = Handshake("shipped", "zero", 0)
SKETCH = Handshake("sketch", "zero", 0)


def broken(stream: Stream, message: Begin | Commit | Rollback | Status | ResetRequired | AckRequested) -> list[str]:
    return [problem.rule for problem in stream.problems(message)]


def test_judging_a_message_changes_nothing() -> None:
    stream = Stream(LIVE)
    assert broken(stream, Begin(commit_watermark="0b")) == broken(stream, Begin(commit_watermark="0b")) == []
    assert stream.open is None


def test_several_rules_can_break_at_once() -> None:
    stream = Stream(LIVE)
    stream.begin("0b")
    assert broken(stream, Begin(commit_watermark="00")) == ["watermark-form", "begin-inside", "watermark-order"]


def test_a_rolled_back_watermark_can_be_used_again() -> None:
    stream = Stream(LIVE)
    stream.advance(Begin(commit_watermark="0b"))
    stream.advance(Rollback())
    assert broken(stream, Begin(commit_watermark="0b")) == []


def test_a_committed_watermark_cannot_be_used_again() -> None:
    stream = Stream(LIVE)
    stream.advance(Begin(commit_watermark="0b"))
    stream.advance(Commit(watermark="0b"))
    assert broken(stream, Begin(commit_watermark="0b")) == ["watermark-order"]


def test_a_commit_that_goes_back_does_not_lower_the_bar() -> None:
    stream = Stream(LIVE)
    stream.advance(Commit(watermark="01"))
    assert stream.last == "0a"


def test_an_initial_sync_ends_the_shipped_connection_but_not_the_sketch_one() -> None:
    shipped, sketch = Stream(INITIAL), Stream(SKETCH)
    for stream in (shipped, sketch):
        stream.begin("01")
        stream.commit("01")
    assert (shipped.is_over, sketch.is_over) == (True, False)
    assert shipped.begin_problems("02")[0].rule == "after-initial"
    assert broken(shipped, Status(watermark="02")) == ["after-initial"]
    assert broken(sketch, Begin(commit_watermark="02")) == []


def test_a_status_may_repeat_the_last_commit_but_must_be_a_watermark() -> None:
    stream = Stream(LIVE)
    assert broken(stream, Status(watermark="0a")) == []
    assert broken(stream, Status(watermark="x")) == ["watermark-form"]
    stream.advance(Status(watermark="0c"))
    assert stream.last == "0a"


def test_control_messages_are_for_those_who_know_them() -> None:
    assert broken(Stream(LIVE), ResetRequired()) == []
    assert broken(Stream(LIVE), AckRequested()) == ["ack-requested"]
    assert broken(Stream(SKETCH), AckRequested()) == []
    assert broken(Stream(SKETCH), ResetRequired()) == ["initial-reset"]


def test_nothing_is_known_of_a_status_before_the_first_commit() -> None:
    stream = Stream(INITIAL)
    stream.initial = False
    assert broken(stream, Status(watermark="01")) == []
