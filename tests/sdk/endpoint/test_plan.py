"""What a consumer is told to do, for every relation between what it has and what is retained."""

from __future__ import annotations

import pytest

from changesource_sdk.endpoint.plan import Await, Initial, Plan, Reset, Resume, Retained, decide
from protocol.handshake import Handshake

LOG = Retained(generation=2, snapshots=("15", "17"), oldest="15", head="1z")


def asked(last: str | None = None, version: str | None = None) -> Handshake:
    return Handshake("shipped", "zero", 0, last_watermark=last, replica_version=version)


@pytest.mark.parametrize(
    ("handshake", "retained", "asked_above", "plan"),
    [
        (asked(), LOG, None, Initial("17")),
        (asked(), None, None, Await("the first snapshot is being taken")),
        (asked(), LOG, "16", Initial("17")),
        (asked(), LOG, "17", Await("a snapshot above 17 was asked for")),
        (asked("17", "17"), LOG, None, Resume("17")),
        (asked("1z", "15"), LOG, None, Resume("1z")),
        (asked("18"), LOG, None, Resume("18")),
    ],
)
def test_consumers_that_can_be_served(
    handshake: Handshake, retained: Retained | None, asked_above: str | None, plan: Plan
) -> None:
    assert decide(handshake, retained, asked_above) == plan


@pytest.mark.parametrize(
    ("handshake", "retained", "code", "above"),
    [
        (asked("18", "16"), LOG, "unknown-replica", "18"),
        (asked("16", "16"), LOG, "unknown-replica", None),
        (asked("20", "15"), LOG, "ahead", "20"),
        (asked("14"), LOG, "too-old", None),
        (asked("16", "17"), LOG, "before-replica", "17"),
        (asked("18", "15"), None, "no-log", "18"),
    ],
)
def test_gaps_lead_to_a_reset_and_to_a_snapshot_above_all_that_was_seen(
    handshake: Handshake, retained: Retained | None, code: str, above: str | None
) -> None:
    plan = decide(handshake, retained, None)
    assert isinstance(plan, Reset)
    assert (plan.code, plan.above) == (code, above)
    assert handshake.last_watermark is not None
    assert plan.message
