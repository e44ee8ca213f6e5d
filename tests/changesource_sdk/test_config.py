"""Configuration: the order of its sources, and errors that say where and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from changesource_sdk.config import Effective, ServeConfig, load, parse_pairs
from changesource_sdk.errors import ConfigurationError
from service_kit.suggestions import nearest


def loaded(toml: str | None = None, environment: dict[str, str] | None = None, **flags: object) -> Effective:
    return load(toml=toml, toml_name="cs.toml", environment=environment or {}, flags=flags)


def test_defaults_need_nothing() -> None:
    effective = loaded()
    assert effective.config == ServeConfig()
    assert set(effective.origins.values()) == {"default"}


def test_later_sources_win_and_each_value_knows_its_origin() -> None:
    toml = 'listen = "h:1"\ngrace = 3\ncompression = true\nstate = "s"'
    effective = loaded(toml, {"CHANGESOURCE_LISTEN": "h:2", "CHANGESOURCE_GRACE": "4"}, listen="h:3", tail_bytes=None)
    assert (effective.config.listen, effective.origins["listen"]) == ("h:3", "--listen")
    assert (effective.config.grace, effective.origins["grace"]) == (4.0, "CHANGESOURCE_GRACE")
    assert (effective.config.state, effective.origins["state"]) == (Path("s"), "cs.toml")
    assert effective.config.compression is True
    assert effective.origins["tail_bytes"] == "default"


def test_adapter_settings_of_all_sources_are_merged() -> None:
    effective = loaded(
        '[set]\npath = "a"\npoll = 1', {"CHANGESOURCE_SET_POLL": "2", "HOME": "/"}, settings={"tables": "x"}
    )
    assert effective.config.settings == {"path": "a", "poll": "2", "tables": "x"}


@pytest.mark.parametrize(
    ("toml", "environment", "flags", "code", "where", "hint"),
    [
        ('lisen = "h:1"', {}, {}, "unknown-key", "cs.toml", "did you mean 'listen'?"),
        ("stat", {}, {}, "bad-toml", "cs.toml", "correct that line"),
        ("set = 3", {}, {}, "bad-value", "cs.toml", "[set]"),
        (None, {"CHANGESOURCE_LISEN": "x"}, {}, "unknown-key", "the environment", "CHANGESOURCE_LISTEN"),
        (None, {"CHANGESOURCE_GRACE": "soon"}, {}, "bad-value", "CHANGESOURCE_GRACE", "transaction boundary"),
        (None, {"CHANGESOURCE_TAIL_BYTES": "inf"}, {}, "bad-value", "CHANGESOURCE_TAIL_BYTES", "memory"),
        (None, {"CHANGESOURCE_LOG_LEVELS": "info"}, {}, "unknown-key", "the environment", "CHANGESOURCE_LOG_LEVEL"),
        (None, {"CHANGESOURCE_COMPRESSION": "maybe"}, {}, "bad-value", "CHANGESOURCE_COMPRESSION", "deflate"),
        ("tail_bytes = 1.5", {}, {}, "bad-value", "cs.toml", "memory"),
        ("grace = true", {}, {}, "bad-value", "cs.toml", "transaction boundary"),
        ("listen = 4", {}, {}, "bad-value", "cs.toml", "address"),
        (None, {}, {"listen": "nowhere"}, "bad-value", "--listen", "address"),
        (None, {}, {"grace": 0.0}, "bad-value", "--grace", "transaction boundary"),
        (None, {}, {"runner": "flink"}, "bad-value", "--runner", "pipeline"),
        (None, {}, {"tls_cert": Path("c.pem")}, "bad-tls", "tls_cert, tls_key", "give both"),
    ],
)
def test_mistakes_are_named(
    toml: str | None, environment: dict[str, str], flags: dict[str, object], code: str, where: str, hint: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        loaded(toml, environment, **flags)
    assert (caught.value.code, caught.value.where) == (code, where)
    assert hint in caught.value.fix


def test_secrets_are_never_shown() -> None:
    effective = loaded(api_key="hunter2", settings={"password": "hunter2", "path": "app.db"})
    shown = {name: value for name, value, _ in effective.describe()}
    assert "hunter2" not in "".join(shown.values())
    assert shown["api_key"] == "(set, not shown)"
    assert "path=app.db" in shown["settings"]


def test_a_secret_of_the_wrong_kind_is_not_repeated() -> None:
    with pytest.raises(ConfigurationError) as caught:
        loaded("api_key = 1234567")
    assert "1234567" not in caught.value.message


def test_pairs_keep_everything_after_the_first_equals_sign() -> None:
    assert parse_pairs(["url=a=b", " path =x"]) == {"url": "a=b", "path": "x"}
    with pytest.raises(ConfigurationError, match="not key=value"):
        parse_pairs(["path"])


def test_nearest_names_everything_when_nothing_is_near() -> None:
    assert nearest("zzz", ["sqlite", "memory"]) == "known: memory, sqlite"


def test_address_is_split_into_host_and_port() -> None:
    assert (ServeConfig(listen="[::1]:80").host, ServeConfig(listen="[::1]:80").port) == ("::1", 80)


@pytest.mark.parametrize("variable", ["CHANGESOURCE_CACHE_HOST", "CHANGESOURCE_SEED", "CHANGESOURCE_CONFIG"])
def test_variables_of_the_other_commands_and_of_the_test_kit_are_let_be(variable: str) -> None:
    assert loaded(environment={variable: "x"}).config == loaded().config
