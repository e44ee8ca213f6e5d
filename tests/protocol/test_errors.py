import pytest

from protocol.errors import CodecError, HandshakeError, ProtocolError, SessionError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ProtocolError("went wrong"), "went wrong"),
        (ProtocolError("went wrong", where="here"), "here: went wrong"),
        (ProtocolError("went wrong", where="here", fix="do this"), "here: went wrong (do this)"),
    ],
)
def test_an_error_says_where_what_and_how_to_fix_it(error: ProtocolError, text: str) -> None:
    assert str(error) == text


def test_codes_are_stable() -> None:
    errors = (CodecError("x"), HandshakeError("x"), SessionError("x", rule="json"))
    assert [error.code for error in errors] == ["codec", "handshake", "session"]


def test_a_handshake_error_is_a_bad_request_unless_it_says_otherwise() -> None:
    assert HandshakeError("x").status == 400
    assert HandshakeError("x", status=404).status == 404
