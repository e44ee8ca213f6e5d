"""Settings from several sources: the last one wins, each value has an origin, and bad ones are refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from protocol.redaction import redact
from service_kit.settings import (
    BadValue,
    Reader,
    SettingsSource,
    checked,
    declared,
    from_environment,
    load,
    number,
    path,
    setting,
    text,
    whole,
    words,
)


@dataclass(frozen=True, kw_only=True)
class Config:
    port: int = setting(80, whole, "port", "APP_PORT", "APP_FORMER_PORT")
    name: str = setting("app", text, "name", "APP_NAME")
    key: Path | None = setting(None, path, "file of keys", "APP_KEY")
    password: str | None = setting(None, text, "password", "APP_PASSWORD", secret=True)
    table: Mapping[str, object] = setting({}, dict, "pairs")
    other: int = 1


class Refused(Exception):
    pass


def refuse(name: str, raw: object, origin: str, bad: BadValue) -> Refused:
    return Refused(f"{name}={raw!r} from {origin}: {bad}")


def loaded(*sources: dict[str, object]) -> tuple[dict[str, Any], dict[str, str]]:
    named = [SettingsSource(values, lambda name, at=at: f"source {at}") for at, values in enumerate(sources)]  # type: ignore[misc]
    return load(Config, named, refuse)


def test_fields_that_are_no_settings_are_left_out() -> None:
    assert list(declared(Config)) == ["port", "name", "key", "password", "table"]
    assert Config() == Config(port=80, name="app", table={})


def test_the_last_source_wins_and_each_value_has_an_origin() -> None:
    values, origins = loaded({"port": 1, "name": "a"}, {"port": "2"}, {})
    assert values == {"port": 2, "name": "a"}
    assert (origins["port"], origins["name"], origins["key"]) == ("source 1", "source 0", "default")


def test_tables_are_merged_and_an_empty_one_is_no_origin() -> None:
    values, origins = loaded({"table": {"a": 1, "b": 1}}, {"table": {"b": 2}}, {"table": {}})
    assert values["table"] == {"a": 1, "b": 2}
    assert origins["table"] == "source 1"


def test_the_first_variable_that_is_set_is_read() -> None:
    variables = {"port": ("APP_PORT", "APP_FORMER_PORT"), "name": ("APP_NAME",)}
    source = from_environment({"APP_FORMER_PORT": "1", "OTHER": "x"}, variables)
    assert (source.values, source.origin("port")) == ({"port": "1"}, "APP_FORMER_PORT")
    assert from_environment({"APP_FORMER_PORT": "1", "APP_PORT": "2"}, variables).values == {"port": "2"}


def test_a_bad_value_is_refused_with_its_origin() -> None:
    with pytest.raises(Refused, match="port='x' from source 0: a whole number"):
        loaded({"port": "x"})


def test_secrets_are_masked_from_then_on_but_not_the_path_of_a_file() -> None:
    loaded({"password": "correcthorse", "key": "/etc/api_key_file", "name": "ws://me:batterystaple@host"})
    shown = redact("correcthorse batterystaple /etc/api_key_file")
    assert shown == "*** *** /etc/api_key_file"


@pytest.mark.parametrize(
    ("read", "raw", "value"),
    [
        (number, "1.5", 1.5),
        (number, 2, 2.0),
        (whole, "1e3", 1000),
        (whole, 4.0, 4),
        (words, " a, ,b", ("a", "b")),
        (words, ["a", "b"], ("a", "b")),
        (path, "x", Path("x")),
        (path, Path("x"), Path("x")),
    ],
)
def test_what_readers_take(read: Reader, raw: object, value: object) -> None:
    assert read(raw) == value


@pytest.mark.parametrize(
    ("read", "raw", "wanted"),
    [
        (text, 1, "text"),
        (number, True, "a number"),
        (number, "soon", "a number"),
        (whole, 1.5, "a whole number"),
        (whole, "inf", "a whole number"),
        (whole, "nan", "a whole number"),
        (words, [1], "text"),
        (path, 1, "text"),
    ],
)
def test_what_readers_refuse(read: Reader, raw: object, wanted: str) -> None:
    with pytest.raises(BadValue) as refused:
        read(raw)
    assert refused.value.wanted == wanted


def test_a_check_names_the_problem_and_the_value() -> None:
    with pytest.raises(BadValue, match="must be positive; it is -1"):
        checked(whole, lambda value: None if value > 0 else "must be positive")("-1")
