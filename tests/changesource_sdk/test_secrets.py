"""No command, log line, report or error shows a password, whatever is in it and whoever repeats it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.errors import KafkaConfigurationError
from typer.testing import CliRunner

from changesource_cli.app import app
from changesource_sdk.changelog.open import open_store
from changesource_sdk.changelog.spool.remote import RemoteSpool
from changesource_sdk.errors import AdapterError, ChangesourceError
from protocol import redaction
from reference_cache.config import load as load_cache
from reference_cache.errors import CacheError
from reference_cache.replica.stored_catalog import Origin
from reference_cache.replicator.settings import ReplicatorSettings
from service_kit import logs
from tests.protocol.test_redaction import HOSTILE, leaks

runner = CliRunner()
CACHE = {"ZERO_UPSTREAM_DB": "ws://app:quartz/zebra@h/changes/v0/stream?apiKey=violet"}


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(redaction, "_known", set())
    monkeypatch.setattr(redaction, "_known_pattern", None)
    yield
    logging.getLogger(logs.LOGGER_NAME).handlers.clear()


@pytest.mark.parametrize("password", HOSTILE)
def test_commands_never_print_the_password_of_a_dsn(password: str, tmp_path: Path) -> None:
    dsn = f"postgresql://app:{password}@127.0.0.1:1/shop"
    state = ("--state", str(tmp_path / "state"))
    for command in (
        ["serve", "postgres", "--set", f"dsn={dsn}", "--show-config", *state],
        ["serve", "postgres", "--set", f"dsn {dsn}", *state],
        ["doctor", "postgres", "--set", f"dsn={dsn}", "--log", dsn, *state],
        ["tail", f"ws://app:{password}@127.0.0.1:1", "--from", "start"],
        ["inspect", f"http://app:{password}@127.0.0.1:1"],
    ):
        result = runner.invoke(app, command)
        assert leaks(result.output) == [], command[0]
        assert result.exception is None or isinstance(result.exception, SystemExit), command


@pytest.mark.parametrize("password", HOSTILE)
def test_settings_of_kafka_and_spark_are_masked_and_not_repeated_by_errors(password: str) -> None:
    options = ["--set", "sasl_plain_username=app", "--set", f"sasl_plain_password={password}", "--set", "topics=t"]
    options += ["--set", "bootstrap_servers=127.0.0.1:1", "--conf", f"spark.hadoop.fs.s3a.secret.key={password}"]
    result = runner.invoke(app, ["serve", "kafka", *options, "--show-config", "--json"])
    assert result.exit_code == 0, result.output
    assert leaks(result.output) == []
    raised = KafkaConfigurationError(f"unrecognized configs: {{'sasl_plain_password': {password!r}}}, not {password}")
    error = AdapterError("adapter-failed", f"Kafka says: {raised}", where=f"login {password}", fix="…")
    assert leaks(str(error) + json.dumps(error.as_json()) + repr(error)) == []


@pytest.mark.parametrize("form", ["text", "json", "relay"])
@pytest.mark.parametrize("password", HOSTILE)
def test_log_lines_and_stack_traces_are_redacted(password: str, form: str) -> None:
    redaction.hide_setting("dsn", f"postgresql://app:{password}@h/shop")
    stream = io.StringIO()
    logs.configure(form=form, level="debug", stream=stream)
    log = logs.logger("test")
    logs.event(log, logging.WARNING, f"cannot reach {password}", error=password, deep={"list": [password]})
    try:
        raise ValueError(f"bad dsn postgresql://app:{password}@h/shop: {password!r}")
    except ValueError:
        log.exception("failed")
    assert leaks(stream.getvalue()) == []
    if form == "json":
        assert [json.loads(line)["level"] for line in stream.getvalue().splitlines()] == ["warning", "error"]


def test_the_cache_never_shows_its_secrets() -> None:
    jwk = json.dumps({"kty": "oct", "k": "quartz-zebra"})
    environment = CACHE | {"ZERO_AUTH_JWK": jwk, "ZERO_QUERY_API_KEY": "violet zebra", "ZERO_ADMIN_PASSWORD": "quartz%"}
    for options in ([], ["--json"]):
        result = runner.invoke(app, ["cache", "--show-config", *options], env=environment)
        assert result.exit_code == 0, result.output
        assert leaks(result.output) == []
    load_cache(environment)
    error = CacheError("upstream", "no answer from quartz/zebra with violet zebra", "quartz-zebra", "…")
    assert leaks(str(error)) == []


def test_addresses_for_people_have_no_secrets() -> None:
    spool = RemoteSpool("s3://quartz:zebra/violet@bucket/spool?secret=zebra")
    assert str(spool) == "s3://bucket/spool"
    settings = ReplicatorSettings(CACHE["ZERO_UPSTREAM_DB"], Path("r.db"), Origin("zero"))
    assert settings.shown_upstream == "ws://h/changes/v0/stream"


def test_a_log_in_a_database_that_is_not_there_is_told_without_its_password(tmp_path: Path) -> None:
    for password in HOSTILE:
        log = f"postgresql://app:{password}@127.0.0.1:1/shop"
        redaction.hide_setting("log", log)
        with pytest.raises(ChangesourceError) as caught:
            open_store(tmp_path, log).open_log().state()
        assert leaks(str(caught.value) + repr(caught.value.args)) == []
