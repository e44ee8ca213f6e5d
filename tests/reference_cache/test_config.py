"""Settings from zero-cache's own variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from reference_cache.config import AppEndpoint, load, settings
from reference_cache.errors import BadSetting
from reference_cache.zero_variables import NOT_USED

LEAST = {"ZERO_UPSTREAM_DB": "ws://127.0.0.1:4810/changes/v0/stream"}


def test_the_upstream_is_all_that_is_needed() -> None:
    config = load(LEAST)
    assert (config.port, config.app_id, config.schema, config.auto_reset) == (4848, "zero", "zero_0", True)
    assert config.cvr_file == Path("zero.db-cvr")
    assert config.unused == ()


def test_the_applications_endpoints_are_read_with_their_options() -> None:
    config = load(
        {
            **LEAST,
            "ZERO_QUERY_URL": "https://app/query, https://*.app/query",
            "ZERO_QUERY_FORWARD_COOKIES": "true",
            "ZERO_QUERY_ALLOWED_CLIENT_HEADERS": "x-a,x-b",
            "ZERO_MUTATE_URL": "https://app/mutate",
            "ZERO_MUTATE_API_KEY": "k",
        }
    )
    query = AppEndpoint(
        urls=("https://app/query", "https://*.app/query"), forward_cookies=True, allowed_client_headers=("x-a", "x-b")
    )
    assert config.query == query
    assert config.mutate == AppEndpoint(urls=("https://app/mutate",), api_key="k")


def test_former_names_still_work_and_newer_ones_win() -> None:
    former = {**LEAST, "ZERO_PUSH_URL": "http://old/m", "ZERO_GET_QUERIES_URL": "http://old/q"}
    assert load(former).mutate_urls == ("http://old/m",)
    assert load({**former, "ZERO_QUERY_URL": "http://new/q"}).query_urls == ("http://new/q",)


def test_what_only_zero_cache_uses_is_accepted_and_reported() -> None:
    given = {**LEAST, "ZERO_CVR_DB": "postgres://x", "ZERO_NUM_SYNC_WORKERS": "4", "OTHER": "x"}
    assert load(given).unused == ("ZERO_CVR_DB", "ZERO_NUM_SYNC_WORKERS")


def test_no_variable_is_both_used_and_unused() -> None:
    used = {name for each in settings() for name in (each.metadata["variable"], *each.metadata["old"])}
    assert not used & NOT_USED


@pytest.mark.parametrize(
    ("variable", "value", "fix"),
    [
        ("ZERO_PORT", "eighty", "ZERO_PORT"),
        ("ZERO_PORT", "70000", "65535"),
        ("ZERO_AUTO_RESET", "perhaps", "ZERO_AUTO_RESET=true"),
        ("ZERO_UPSTREAM_TYPE", "pg", "custom"),
        ("ZERO_UPSTREAM_DB", "postgres://host/db", "/changes/v0/stream"),
        ("ZERO_APP_ID", "My App", "lower-case"),
        ("ZERO_QUERY_URL", "app/query", "https://"),
        ("ZERO_MUTATE_URL", "https://app/m?schema=x", "leave schema"),
        ("ZERO_LOG_LEVEL", "loud", "debug"),
        ("ZERO_AUTH_JWK", "{", "JSON object"),
        ("ZERO_YIELD_THRESHOLD_MS", "soon", "number"),
        ("CHANGESOURCE_CACHE_ALLOWED_ORIGINS", "app.example.com", "https://app.example.com"),
        ("CHANGESOURCE_CACHE_ALLOWED_ORIGINS", "https://app.example.com/path", "without a path"),
        ("ZERO_PROT", "1", "ZERO_PORT"),
        ("CHANGESOURCE_CACHE_MAX_CONNECTION", "1", "CHANGESOURCE_CACHE_MAX_CONNECTIONS"),
    ],
)
def test_a_bad_value_names_the_variable_and_the_remedy(variable: str, value: str, fix: str) -> None:
    with pytest.raises(BadSetting) as refused:
        load({**LEAST, variable: value})
    assert refused.value.where == variable
    assert fix in refused.value.fix


def test_a_missing_upstream_is_named() -> None:
    with pytest.raises(BadSetting) as refused:
        load({"ZERO_UPSTREAM_DB": ""})
    assert refused.value.where == "ZERO_UPSTREAM_DB"


def test_only_one_way_to_verify_tokens_may_be_set() -> None:
    with pytest.raises(BadSetting, match="ZERO_AUTH_JWK"):
        load({**LEAST, "ZERO_AUTH_SECRET": "s", "ZERO_AUTH_JWK": "{}"})


def test_only_this_machine_can_connect_unless_the_address_is_set() -> None:
    assert load(LEAST).host == "127.0.0.1"
    assert load({**LEAST, "CHANGESOURCE_CACHE_HOST": "0.0.0.0"}).host == "0.0.0.0"


def test_a_certificate_needs_its_key() -> None:
    with pytest.raises(BadSetting, match="TLS_KEY"):
        load({**LEAST, "CHANGESOURCE_CACHE_TLS_CERT": "cert.pem"})


def test_the_limit_of_mutations_is_zero_caches_own() -> None:
    assert load(LEAST).mutation_limit is None
    limited = load({**LEAST, "ZERO_PER_USER_MUTATION_LIMIT_MAX": "5"})
    assert (limited.mutation_limit, limited.mutation_limit_window_ms, limited.unused) == (5, 60_000, ())


SECRETS = [
    (each.name, variable)
    for each in settings()
    if each.metadata["secret"]
    for variable in (each.metadata["variable"], *each.metadata["old"])
]


@pytest.mark.parametrize(("name", "variable"), SECRETS)
def test_every_secret_may_be_in_a_file(tmp_path: Path, name: str, variable: str) -> None:
    value = {"upstream_db": LEAST["ZERO_UPSTREAM_DB"], "auth_jwk": '{"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}'}
    file = tmp_path / "secret"
    file.write_text(f"{value.get(name, 'hunter2')}\n")
    needed = {} if name == "upstream_db" else LEAST
    needed = needed | {"ZERO_QUERY_URL": "https://app/query", "ZERO_MUTATE_URL": "https://app/mutate"}
    in_file, in_variable = (
        load({**needed, f"{variable}_FILE": str(file)}),
        load({**needed, variable: value.get(name, "hunter2")}),
    )
    assert in_file == in_variable
    assert getattr(in_file, name) == value.get(name, "hunter2")
    assert f"{variable}_FILE" not in in_file.unused
    with pytest.raises(BadSetting, match="the value itself is set as well"):
        load({**needed, variable: "x", f"{variable}_FILE": str(file)})


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "cannot be read"), (b"", "is empty"), (b"\n", "is empty"), (b"\xff", "not UTF-8")],
)
def test_a_secret_file_that_has_no_secret_is_refused(tmp_path: Path, content: bytes | None, problem: str) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadSetting, match=problem) as caught:
        load({**LEAST, "ZERO_AUTH_SECRET_FILE": str(file)})
    assert "ZERO_AUTH_SECRET_FILE" in str(caught.value)


def test_what_is_no_secret_has_no_file_variable(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="no such setting"):
        load({**LEAST, "ZERO_APP_ID_FILE": str(tmp_path)})
