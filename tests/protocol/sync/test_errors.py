"""Errors as clients are told of them."""

import json

import pytest

from protocol.sync.errors import ErrorKind, SyncError, push_failed, transform_failed, unauthorized


def test_every_error_has_kind_message_and_origin() -> None:
    for kind in ErrorKind:
        tag, body = json.loads(SyncError(kind, "why").frame)
        assert tag == "error"
        assert body == {"kind": kind.value, "message": "why", "origin": "zeroCache"}


def test_a_failed_push_names_its_mutations() -> None:
    error = push_failed("http", "no", [{"id": 1, "clientID": "c"}], status=500)
    assert error.body == {
        "kind": "PushFailed",
        "message": "no",
        "origin": "zeroCache",
        "reason": "http",
        "mutationIDs": [{"id": 1, "clientID": "c"}],
        "status": 500,
    }


@pytest.mark.parametrize(
    ("error", "refuses"),
    [
        (unauthorized("no"), True),
        (SyncError(ErrorKind.AUTH_INVALIDATED, "no"), True),
        (transform_failed("http", "no", [], status=401), True),
        (push_failed("http", "no", [], status=403), True),
        (transform_failed("http", "no", [], status=500), False),
        (transform_failed("parse", "no", []), False),
        (SyncError(ErrorKind.INTERNAL, "no"), False),
    ],
)
def test_only_some_errors_ask_for_new_credentials(error: SyncError, refuses: bool) -> None:
    assert error.refuses_credentials is refuses
