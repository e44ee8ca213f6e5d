"""Secrets stay out of texts: by how they look, and by what is known of them."""

from __future__ import annotations

import json

import pytest

from protocol import redaction
from protocol.redaction import MASK, hide, hide_setting, is_secret_name, redact, redact_value, shown_host, shown_url

#: Passwords that parsers of URLs and DSNs take apart in different places; every piece is one of `PIECES`.
HOSTILE = (
    "quartz%zebra",
    "quartz/zebra",
    "quartz@zebra",
    "quartz:zebra",
    "quartz?zebra#violet",
    "quartz&zebra=violet",
    "quartz zebra",
    "quartz'zebra\"violet",
    "quartz\\zebra",
    "quartz%2Fzebra%40violet",
    "@quartz//zebra@",
)
PIECES = ("quartz", "zebra", "violet")


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_known", set())
    monkeypatch.setattr(redaction, "_known_pattern", None)


def leaks(text: str) -> list[str]:
    return [piece for piece in PIECES if piece in text.lower()]


@pytest.mark.parametrize("password", [secret for secret in HOSTILE if not set(secret) & set(" '\"")])
def test_a_url_loses_user_and_password_though_nobody_knows_them(password: str) -> None:
    url = f"postgresql://app:{password}@db.example:5432/shop"
    assert leaks(redact(f'cannot reach "{url}", trying again')) == []
    assert leaks(shown_url(url)) == leaks(shown_host(url)) == []


@pytest.mark.parametrize("password", HOSTILE)
@pytest.mark.parametrize("name", ["dsn", "url", "log", "sasl_plain_password"])
def test_a_configured_secret_is_masked_whole_and_in_pieces(name: str, password: str) -> None:
    value = password if name == "sasl_plain_password" else f"postgresql://app:{password}@db.example:5432/shop?x=1"
    hide_setting(name, value)
    for said in (password, value, repr(password), json.dumps({"x": password}), f"invalid token: {password!r}"):
        assert leaks(redact(f"the driver says {said} cannot be")) == [], said
    if name != "sasl_plain_password":
        for piece in PIECES:
            assert leaks(redact(f'invalid integer value "{piece}" for connection option "port"')) == [] or (
                piece not in password
            )


@pytest.mark.parametrize(
    "text",
    [
        "host=db password=quartz user=app",
        "host=db password='quartz \\'zebra' user=app",
        'login required username="app" password="quartz zebra";',
        '{"sasl_plain_password": "quartz zebra", "topic": "t"}',
        "{'password': 'quartz', 'secret_key': 'zebra'}",
        "GET /changes/v0/stream?appID=zero&apiKey=quartz%40zebra&shardNum=0",
        "https://host/x?X-Amz-Signature=quartz&token=zebra",
        "Authorization: Basic cXVhcnR6cXVhcnR6OnplYnJh quartz"[:45],
        '{"kty": "oct", "k": "quartz"}',
        "-----BEGIN PRIVATE KEY-----\nquartz\nzebra\n-----END PRIVATE KEY-----",
        "spark.hadoop.fs.s3a.secret.key=quartz",
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str) -> None:
    assert leaks(redact(text)) == []
    assert MASK in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "password authentication failed for user app",
        "write it as postgresql://user:password@host:5432/database",
        "missing or wrong key; send it as apiKey=… or as the password of the URL",
        "consumer connected app=zero shard=0 key=staging",
        "cannot read http://host:80/a/b?x=1",
        "the primary key is id, the bypass: none, 3 tokens",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_values_are_masked_by_name_and_by_content_at_any_depth() -> None:
    value = {"options": {"password": "quartz", "list": ["ws://a:zebra@h/x", 3, None]}, "port": 1}
    assert redact_value(value) == {"options": {"password": MASK, "list": [f"ws://{MASK}@h/x", 3, None]}, "port": 1}


def test_a_symmetric_key_is_known_by_its_member() -> None:
    hide_setting("ZERO_AUTH_JWK", '{"kty": "oct", "k": "quartz-zebra"}')
    assert leaks(redact("no such key: quartz-zebra")) == []


def test_a_password_that_is_the_name_of_its_database_hides_nothing_else() -> None:
    hide_setting("dsn", "postgresql://postgres:postgres@db/postgres")
    assert redact("postgres says: the table is gone") == "postgres says: the table is gone"
    assert redact("postgresql://postgres:postgres@db/postgres") == f"postgresql://{MASK}@db/postgres"


def test_short_values_and_parts_of_words_are_left() -> None:
    hide("abc", "quartz")
    assert redact("abc quartzite quartz") == f"abc quartzite {MASK}"


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        *((name, True) for name in ("password", "sasl_plain_password", "apiKey", "dsn", "fs.s3a.secret.key")),
        *((name, False) for name in ("topic", "passive", "port", "key_columns")),
    ],
)
def test_names_tell_whether_a_value_is_secret(name: str, is_secret: bool) -> None:
    assert is_secret_name(name) is is_secret


def test_settings_may_be_nested_and_need_not_be_texts() -> None:
    hide_setting("settings", {"options": {"password": "quartz-1", "port": 5432}, "jwk": "{quartz-2"})
    assert leaks(redact("quartz-1 and {quartz-2")) == []


def test_a_bare_host_and_port_is_shown_as_it_is() -> None:
    assert shown_url("host:4810") == shown_host("ws://u:p@host:4810/x?y=1") == "host:4810"


def test_an_option_string_gives_up_its_passwords() -> None:
    hide_setting("jaas", 'login username="app" password="quartz \\"zebra" ssl_password=\'violet\'')
    assert leaks(redact('refused: quartz "zebra, violet')) == []
