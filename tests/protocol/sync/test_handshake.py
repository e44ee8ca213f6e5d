"""Opening the sync socket: path, parameters and the encoded subprotocol."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import HandshakeError
from protocol.sync.handshake import decode_subprotocol, encode_subprotocol, parse_request

QUERY = "clientID=c1&clientGroupID=g1&baseCookie=&ts=413.117385&lmid=0&wsid=w1&profileID=p1"


def test_a_request_of_the_official_client_is_read() -> None:
    found = parse_request(f"/sync/v51/connect?{QUERY}", encode_subprotocol(["initConnection", {}], "token"))
    assert (found.version, found.client_id, found.client_group_id, found.ws_id) == (51, "c1", "g1", "w1")
    assert (found.base_cookie, found.user_id, found.profile_id) == (None, None, "p1")
    assert (found.auth_token, found.init) == ("token", ["initConnection", {}])
    assert found.is_supported


@pytest.mark.parametrize(("version", "supported"), [(29, False), (30, True), (51, True), (52, False)])
def test_versions_thirty_to_fifty_one_are_spoken(version: int, supported: bool) -> None:
    assert parse_request(f"/base/sync/v{version}/connect?{QUERY}", "e30%3D").is_supported is supported


def test_parameters_are_decoded_and_others_pass() -> None:
    found = parse_request(f"/sync/v51/connect?{QUERY}&userID=a%20b&baseCookie=07%3A01&debugPerf=true&x=1", "e30%3D")
    assert (found.user_id, found.base_cookie) == ("a b", "07:01")


@pytest.mark.parametrize("path", ["/", "/sync/v51", "/sync/vx/connect", "/a/b/sync/v51/connect", "/sync/v51/connect/"])
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(HandshakeError):
        parse_request(f"{path}?{QUERY}", "e30%3D")


@pytest.mark.parametrize("name", ["clientID", "clientGroupID", "ts", "lmid"])
def test_a_missing_parameter_is_named(name: str) -> None:
    query = "&".join(pair for pair in QUERY.split("&") if not pair.startswith(f"{name}="))
    with pytest.raises(HandshakeError, match=name):
        parse_request(f"/sync/v51/connect?{query}", "e30%3D")


@pytest.mark.parametrize("value", [None, "", "***", "e30", "W10%3D", "eyJhdXRoVG9rZW4iOjF9"])
def test_an_unreadable_letter_is_refused(value: str | None) -> None:
    with pytest.raises(HandshakeError, match="Sec-WebSocket-Protocol"):
        decode_subprotocol(value)


def test_nothing_at_all_is_the_known_letter() -> None:
    assert encode_subprotocol() == "e30%3D"
    assert decode_subprotocol("e30%3D") == (None, None)


def test_an_empty_token_is_no_token() -> None:
    assert decode_subprotocol(encode_subprotocol(None, "")) == (None, None)


@given(st.text(min_size=1), st.lists(st.text()))
def test_a_letter_reads_back(token: str, message: list[str]) -> None:
    try:
        token.encode()
        "".join(message).encode()
    except UnicodeEncodeError:
        return
    assert decode_subprotocol(encode_subprotocol(message, token)) == (token, message)
