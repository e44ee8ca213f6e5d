"""Requests are refused in a fixed order, before any work, with a text that names the fault and no secret."""

from __future__ import annotations

import base64

import pytest

from changesource_sdk.endpoint.access.auth import AccessRules
from changesource_sdk.endpoint.access.gate import Gate, Incoming, Refusal, StreamAdmission
from changesource_sdk.endpoint.access.keys import KeyRing
from changesource_sdk.policies.origins import BrowserRules

GOOD = "/changes/v0/stream?appID=zero&shardNum=0"


def admit(
    target: str, authorization: str | None, api_key: str | None, publications: frozenset[str] | None = None
) -> StreamAdmission | Refusal:
    gate = Gate(AccessRules(KeyRing(api_key)), BrowserRules(is_loopback=True), publications)
    return gate.admit(Incoming(target, authorization=authorization))


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("target", "status", "reason", "says"),
    [
        ("/", 404, "path", "/changes/v0/stream"),
        ("/changes/v9/stream?appID=zero&shardNum=0", 404, "path", "/changes/v0/stream"),
        ("/changes/v0/stream", 400, "parameters", "appID"),
        ("/changes/v0/stream?appID=zero&shardNum=x", 400, "parameters", "shardNum"),
        (GOOD + "&lastWatermark=zz", 400, "parameters", "lastWatermark"),
        (GOOD + "&lastWatermark=" + "z" * 4000, 400, "parameters", "lastWatermark"),
        ("/" + "x" * 4000, 404, "path", "/changes/v0/stream"),
        (GOOD + "&replicaVersion=07", 400, "parameters", "lastWatermark"),
        ("/changes/v0/stream?appID=%ff", 400, "parameters", "query"),
        (GOOD + "&x=" * 200, 400, "parameters", "query"),
        (GOOD + "&x=" + "y" * 9000, 400, "parameters", "characters"),
        (f"/changes/v0/stream?appID={'a' * 64}&shardNum=0", 400, "parameters", "appID"),
        (f"/changes/v0/stream?shardID={'a' * 62}_1", 400, "parameters", "shardID"),
        ("/changes/v0/stream?appID=Zero&shardNum=0", 400, "parameters", "appID"),
        (f"{GOOD}&publications={'p' * 64}", 400, "parameters", "publications"),
        (GOOD + "".join(f"&publications=p{n}" for n in range(65)), 400, "parameters", "publications"),
    ],
)
def test_refusals_name_the_fault(target: str, status: int, reason: str, says: str) -> None:
    refusal = admit(target, None, None)
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.reason) == (status, reason)
    assert says in refusal.text
    assert len(refusal.text) < 400, "what a peer sends is not repeated at length"


@pytest.mark.parametrize(
    ("target", "authorization"),
    [
        (GOOD + "&apiKey=s3cret", None),
        (GOOD, basic("anyone:s3cret")),
        (GOOD + "&apiKey=wrong", basic("x:s3cret")),
    ],
)
def test_a_right_key_is_admitted_from_either_place(target: str, authorization: str | None) -> None:
    assert isinstance(admit(target, authorization, "s3cret"), StreamAdmission)


@pytest.mark.parametrize(
    ("target", "authorization"),
    [
        (GOOD, None),
        (GOOD + "&apiKey=", None),
        (GOOD + "&apiKey=s3cre", None),
        (GOOD, basic("s3cret")),
        (GOOD, "Basic !!!"),
        (GOOD, "Bearer s3cret"),
    ],
)
def test_a_missing_or_wrong_key_is_refused_without_repeating_it(target: str, authorization: str | None) -> None:
    refusal = admit(target, authorization, "s3cret")
    assert isinstance(refusal, Refusal)
    assert refusal.status == 401
    assert "s3cre" not in refusal.text


def test_the_key_comes_before_the_parameters() -> None:
    refusal = admit("/changes/v0/stream?appID=!", None, "k")
    assert isinstance(refusal, Refusal)
    assert refusal.status == 401


def test_without_a_configured_key_anyone_may_connect() -> None:
    assert isinstance(admit(GOOD + "&apiKey=whatever", None, None), StreamAdmission)


def test_a_consumer_gets_the_publications_it_names_or_nothing() -> None:
    served = frozenset({"a", "b"})
    for asked in ("", "&publications=b&publications=a"):
        assert isinstance(admit(GOOD + asked, None, None, served), StreamAdmission)
    refusal = admit(GOOD + "&publications=a", None, None, served)
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.reason) == (400, "publications")
    assert "ZERO_APP_PUBLICATIONS=a,b" in refusal.text


def test_where_nothing_is_known_of_publications_any_are_taken() -> None:
    assert isinstance(admit(GOOD + "&publications=a", None, None), StreamAdmission)
