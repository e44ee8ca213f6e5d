"""What a consumer is answered, for every relation between what it claims, what is retained and what our record says."""

from __future__ import annotations

import pytest

from changesource_sdk.endpoint.stream.plan import Await, ConsumerRecord, Initial, Plan, Reset, Resume, Retained, decide
from protocol.stream.handshake import Handshake

LOG = Retained(generation=2, snapshots=("0f", "0h"), oldest="0f", head="0z")
NOBODY = ConsumerRecord()
KNOWN = ConsumerRecord(is_known=True)


def asked(last: str | None = None, version: str | None = None) -> Handshake:
    return Handshake("shipped", "zero", 0, last_watermark=last, replica_version=version)


def issued(*versions: str, held: str = "00", is_known: bool = False) -> ConsumerRecord:
    return ConsumerRecord(frozenset(versions), max(held, *versions), is_known)


@pytest.mark.parametrize(
    ("handshake", "retained", "requested_above", "record", "plan"),
    [
        (asked(), LOG, None, NOBODY, Initial("0h")),
        (asked(), None, None, NOBODY, Await("the first snapshot is being taken")),
        (asked(), LOG, "0g", NOBODY, Initial("0h")),
        (asked(), LOG, "0h", NOBODY, Await("a snapshot above 0h was requested")),
        (asked(), LOG, None, issued("0z.0a"), Initial("0h")),
        (asked("0h", "0h"), LOG, None, NOBODY, Resume("0h")),
        (asked("0z", "0f"), LOG, None, KNOWN, Resume("0z")),
        (asked("0i"), LOG, None, KNOWN, Resume("0i")),
        (asked("0f"), LOG, None, NOBODY, Resume("0f")),
        (asked("0z.0a", "0z.0a"), LOG, None, issued("0z.0a"), Resume("0z.0a")),
        (asked("0z", "0i.0a"), LOG, None, issued("0i.0a", is_known=True), Resume("0z")),
    ],
)
def test_consumers_that_can_be_served(
    handshake: Handshake, retained: Retained | None, requested_above: str | None, record: ConsumerRecord, plan: Plan
) -> None:
    assert decide(handshake, retained, requested_above, record) == plan


@pytest.mark.parametrize(
    ("handshake", "retained", "record", "code"),
    [
        (asked("0i", "0g"), LOG, KNOWN, "unknown-replica"),
        (asked("0g", "0g"), LOG, KNOWN, "unknown-replica"),
        (asked("0i", "0i.0a"), LOG, KNOWN, "unknown-replica"),
        (asked("0i", "0e.0a"), LOG, issued("0e.0a", is_known=True), "unknown-replica"),
        (asked("110", "0f"), LOG, NOBODY, "ahead"),
        (asked("0z.0b", "0z.0a"), LOG, issued("0z.0a"), "ahead"),
        (asked("zzzz", "0z.0a"), LOG, issued("0z.0a"), "ahead"),
        (asked("0e"), LOG, KNOWN, "too-old"),
        (asked("0g", "0h"), LOG, KNOWN, "before-replica"),
        (asked("0i", "0f"), LOG, NOBODY, "unknown-watermark"),
        (asked("0i", "0f"), None, NOBODY, "no-log"),
    ],
)
def test_gaps_lead_to_a_reset_of_that_consumer_alone(
    handshake: Handshake, retained: Retained | None, record: ConsumerRecord, code: str
) -> None:
    plan = decide(handshake, retained, None, record)
    assert isinstance(plan, Reset)
    assert (plan.code, plan.above) == (code, None)
    assert plan.message


def test_only_our_own_record_can_show_that_the_log_lost_something() -> None:
    lost = issued("0z.0a", held="114")
    assert decide(asked("zzzz", "0z.0a"), LOG, None, lost) == Reset(
        "ahead", "lastWatermark zzzz is newer than the change log's head 0z", above="114"
    )
    assert decide(asked(), LOG, None, lost) == Await(
        "this log has lost 114, which was sent before; a new snapshot is needed", above="114"
    )
