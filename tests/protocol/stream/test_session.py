"""Both sides of a connection, alone and against each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import watermark
from protocol.changes import DropTable
from protocol.codec import AnyDownstream
from protocol.errors import CodecError, SessionError
from protocol.messages import AckRequested, Begin, Commit, Data, ResetRequired, Rollback, Status
from protocol.specs import Identifier
from protocol.stream.handshake import Handshake
from protocol.stream.session import Acknowledged, ConsumerSession, Premature, ProducerSession, Repeated

LIVE = Handshake("shipped", "zero", 0, frozenset(), "0a", "01")
INITIAL = Handshake("shipped", "zero", 0)
SKETCH = Handshake("sketch", "zero", 0)
CHANGE = Data(change=DropTable(id=Identifier(schema_name="public", name="x")))


def transaction(committed: str, *, skip_ack: bool | None = None) -> list[AnyDownstream]:
    begin = Begin(commit_watermark=committed, skip_ack=skip_ack)
    return [begin, CHANGE, Commit(watermark=committed, commit_time_ms=5)]


def deliver(messages: list[AnyDownstream], producer: ProducerSession, consumer: ConsumerSession) -> None:
    for message in messages:
        assert consumer.receive(producer.send(message)) == message


def ack(text: str) -> str:
    return f'["status",{{"tag":"commit"}},{{"watermark":"{text}"}}]'


def test_a_transaction_is_sent_received_made_durable_and_acknowledged() -> None:
    producer, consumer = ProducerSession(LIVE), ConsumerSession(LIVE)
    deliver(transaction("0b"), producer, consumer)
    assert consumer.acks() == []
    consumer.durable("0b")
    assert consumer.acks() == [b'["status",{"tag":"commit","commitTimeMs":5},{"watermark":"0b"}]']
    assert consumer.acks() == []
    assert producer.receive(ack("0b")) == Acknowledged("0b")
    assert producer.acked == producer.sent == "0b"
    assert consumer.reconnect() == Handshake("shipped", "zero", 0, frozenset(), "0b", "01")


def test_a_status_is_echoed_once_all_before_it_is_durable() -> None:
    producer, consumer = ProducerSession(LIVE), ConsumerSession(LIVE)
    deliver([*transaction("0b"), Status(watermark="0d"), Status(watermark="0e", ack=False)], producer, consumer)
    assert consumer.acks() == []
    consumer.durable("0b")
    first, second = consumer.acks()
    assert second == b'["status",{"ack":true},{"watermark":"0d"}]'
    assert [producer.receive(first), producer.receive(second)] == [Acknowledged("0b"), Acknowledged("0d")]
    assert consumer.reconnect().last_watermark == "0b"


def test_a_status_before_any_transaction_is_echoed_at_once() -> None:
    producer, consumer = ProducerSession(LIVE), ConsumerSession(LIVE)
    deliver([Status(watermark="0d")], producer, consumer)
    assert len(consumer.acks()) == 1


def test_a_commit_that_skips_its_ack_is_not_acknowledged() -> None:
    producer, consumer = ProducerSession(LIVE), ConsumerSession(LIVE)
    deliver(transaction("0b", skip_ack=True), producer, consumer)
    deliver(transaction("0c"), producer, consumer)
    consumer.durable("0c")
    assert len(consumer.acks()) == 1


def test_a_rolled_back_transaction_leaves_no_trace() -> None:
    producer, consumer = ProducerSession(LIVE), ConsumerSession(LIVE)
    deliver([*transaction("0b")[:2], Rollback()], producer, consumer)
    deliver(transaction("0b"), producer, consumer)
    assert producer.sent == "0b"


def test_an_initial_sync_leads_to_a_second_connection() -> None:
    producer, consumer = ProducerSession(INITIAL), ConsumerSession(INITIAL)
    deliver(transaction("01"), producer, consumer)
    assert producer.is_over
    assert consumer.is_over
    assert consumer.reconnect() == INITIAL
    consumer.durable("01")
    assert consumer.acks() == []
    assert consumer.reconnect() == Handshake("shipped", "zero", 0, frozenset(), "01", "01")
    with pytest.raises(SessionError) as caught:
        producer.send(Begin(commit_watermark="02"))
    assert caught.value.rule == "after-initial"


def test_the_sketch_goes_on_in_the_same_connection() -> None:
    producer, consumer = ProducerSession(SKETCH), ConsumerSession(SKETCH)
    deliver([*transaction("01"), *transaction("02")], producer, consumer)
    deliver([AckRequested(), AckRequested(latest_upstream_watermark="05")], producer, consumer)
    assert not consumer.is_over
    consumer.durable("02")
    acks = consumer.acks()
    assert acks == [b'["ack",{"watermark":"01"}]', b'["ack",{"watermark":"02"}]', b'["ack",{"watermark":"05"}]']
    assert [producer.receive(text) for text in acks] == [Acknowledged("01"), Acknowledged("02"), Acknowledged("05")]
    assert consumer.reconnect() == Handshake("sketch", "zero", 0, frozenset(), "02")


def test_a_reset_leads_to_an_initial_sync() -> None:
    producer, consumer = ProducerSession(LIVE), ConsumerSession(LIVE)
    deliver([ResetRequired(message="the log was lost")], producer, consumer)
    assert consumer.reset == ResetRequired(message="the log was lost")
    assert consumer.reconnect() == INITIAL


def test_prepared_transactions_keep_the_same_rules() -> None:
    producer = ProducerSession(LIVE)
    producer.begin("0b")
    assert producer.in_transaction
    with pytest.raises(SessionError) as caught:
        producer.begin("0c")
    assert caught.value.rule == "begin-inside"
    producer.commit()
    assert not producer.in_transaction
    assert producer.receive(ack("0b")) == Acknowledged("0b")
    with pytest.raises(SessionError) as caught:
        producer.commit()
    assert caught.value.rule == "commit-outside"


def test_an_ack_that_is_not_news_changes_nothing() -> None:
    producer = ProducerSession(LIVE)
    assert producer.receive(ack("0a")) == Repeated("0a")
    assert producer.receive(ack("01")) == Repeated("01")
    assert producer.acked == "0a"


@pytest.mark.parametrize("handshake", [LIVE, INITIAL])
def test_an_ack_of_what_was_not_sent_here_counts_for_nothing(handshake: Handshake) -> None:
    producer = ProducerSession(handshake)
    assert producer.receive(ack("0z")) == Premature("0z")
    assert producer.acked == handshake.last_watermark


def test_a_message_that_cannot_be_encoded_leaves_the_session_where_it_was() -> None:
    producer = ProducerSession(LIVE)
    producer.send(Begin(commit_watermark="0b"))
    with pytest.raises(CodecError):
        producer.send(Commit(watermark="0b", commit_time_ms=float("nan")))
    assert producer.in_transaction
    producer.send(Commit(watermark="0b"))
    assert producer.sent == "0b"


def test_a_refused_message_leaves_the_consumer_where_it_was() -> None:
    consumer = ConsumerSession(LIVE)
    with pytest.raises(SessionError) as caught:
        consumer.receive('["begin",{"tag":"begin"},{"commitWatermark":"0a"}]')
    assert (caught.value.rule, caught.value.where) == ("watermark-order", "begin")
    assert consumer.receive('["begin",{"tag":"begin"},{"commitWatermark":"0b"}]') == Begin(commit_watermark="0b")


def test_a_consumer_lets_a_pointless_status_pass() -> None:
    consumer = ConsumerSession(INITIAL)
    assert consumer.receive('["status",{},{"watermark":"01"}]') == Status(watermark="01")
    assert consumer.acks() == []
    assert ConsumerSession(LIVE).receive('["status",{},{"watermark":"01"}]') == Status(watermark="01")


def test_what_is_durable_does_not_become_less() -> None:
    producer, consumer = ProducerSession(LIVE), ConsumerSession(LIVE)
    deliver([*transaction("0b"), *transaction("0c")], producer, consumer)
    consumer.durable("0c")
    consumer.durable("0b")
    assert consumer.reconnect().last_watermark == "0c"


@given(st.lists(st.tuples(st.sampled_from(["commit", "rollback", "status"]), st.integers(0, 3), st.booleans())))
def test_what_a_producer_may_send_a_consumer_accepts_and_acks_never_go_back(steps: list[tuple[str, int, bool]]) -> None:
    producer, consumer = ProducerSession(LIVE), ConsumerSession(LIVE)
    at = reached = "0a"
    for kind, changes, makes_durable in steps:
        if kind == "status":
            deliver([Status(watermark=at)], producer, consumer)
            reached = at
            continue
        at = watermark.succ(at)
        end = Commit(watermark=at) if kind == "commit" else Rollback()
        deliver([Begin(commit_watermark=at), *[CHANGE] * changes, end], producer, consumer)
        if kind == "commit" and makes_durable:
            consumer.durable(at)
        before = producer.acked or ""
        for text in consumer.acks():
            producer.receive(text)
        assert before <= (producer.acked or "") <= max(reached, producer.sent or "")
    assert consumer.reconnect().last_watermark == consumer.last_watermark
