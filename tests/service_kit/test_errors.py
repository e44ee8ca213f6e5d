"""Coded errors: the same fields everywhere, and no secrets in them."""

from __future__ import annotations

import pickle

import pytest

from changesource_sdk.errors import ChangesourceError, StateError
from reference_cache.client.errors import ClientError
from reference_cache.errors import CacheError
from service_kit.errors import CodedError, translated_errors


@pytest.mark.parametrize("kind", [CodedError, ChangesourceError, CacheError, ClientError])
def test_an_error_has_code_message_place_and_fix(kind: type[CodedError]) -> None:
    error = kind("disk-full", "no room", "/state", "free space")
    assert str(error) == "disk-full: no room (/state)"
    assert error.as_json() == {"code": "disk-full", "message": "no room", "where": "/state", "fix": "free space"}
    assert str(kind("disk-full", "no room")) == "disk-full: no room"


def test_passwords_are_masked_in_every_text() -> None:
    error = CodedError("x", "postgresql://me:hunter22@host/db", "password=hunter22", "use ws://me:hunter22@host")
    assert "hunter22" not in f"{error} {error.args} {error.as_json()}"


def test_an_error_travels_between_processes() -> None:
    error = pickle.loads(pickle.dumps(StateError("log-failed", "it failed", "log.sqlite", "check the disk")))
    assert isinstance(error, StateError)
    assert error.as_json()["where"] == "log.sqlite"


def test_only_errors_of_the_kind_are_translated_and_the_cause_is_kept() -> None:
    def translate(error: KeyError) -> CodedError:
        return CodedError("missing", str(error))

    with pytest.raises(CodedError, match="missing: 'a'") as caught, translated_errors(KeyError, translate):
        raise KeyError("a")
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(ValueError, match="other"), translated_errors(KeyError, translate):
        raise ValueError("other")
