"""Pages as HTTP answers."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from service_kit.pages import Page, basic_password, response


def test_a_page_is_answered_with_its_length_and_the_connection_is_closed() -> None:
    answer = response(Page.text(503, "not ready"))
    assert (answer.status_code, answer.reason_phrase, answer.body) == (503, "Service Unavailable", b"not ready\n")
    assert answer.headers["Content-Length"] == "10"
    assert answer.headers["Connection"] == "close"


def test_only_a_refused_page_asks_for_a_password() -> None:
    assert response(Page.text(401, "no"), "zero-cache").headers["WWW-Authenticate"] == 'Basic realm="zero-cache"'
    assert "WWW-Authenticate" not in response(Page.text(401, "no")).headers
    assert "WWW-Authenticate" not in response(Page.text(200, "yes"), "zero-cache").headers


def test_a_document_may_hold_what_is_not_json() -> None:
    page = Page.json(200, {"path": Path("ä")})
    assert (page.content_type, json.loads(page.body)) == ("application/json", {"path": "ä"})


@pytest.mark.parametrize(
    ("header", "password"),
    [
        (f"Basic {base64.b64encode(b'me:a:b').decode()}", b"a:b"),
        (f"basic {base64.b64encode(b'me:').decode()}", b""),
        ("Basic !!", None),
        ("Bearer abc", None),
        ("", None),
        (None, None),
    ],
)
def test_the_password_of_http_basic(header: str | None, password: bytes | None) -> None:
    assert basic_password(header) == password
