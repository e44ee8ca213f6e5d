"""`tail`, `inspect` and `doctor` on a running endpoint and on its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from changesource_cli.app import app
from changesource_sdk.checking.connecting import stream_url
from tests.changesource_cli.conftest import StartServe

runner = CliRunner()


def test_tail_prints_the_snapshot_for_people_and_machines(start_serve: StartServe) -> None:
    served = start_serve()
    people = runner.invoke(app, ["tail", served.url, "--from", "start", "--limit", "1"])
    assert people.exit_code == 0
    assert '  insert issue {"id": "1", "title": "one"}' in people.output
    machines = runner.invoke(app, ["tail", served.url, "--from", "start", "--limit", "1", "--json"])
    messages = [json.loads(line) for line in machines.stdout.splitlines()]
    assert [messages[0][0], messages[-1][0]] == ["begin", "commit"]


def test_tail_from_an_unknown_watermark_ends_with_the_reason(start_serve: StartServe) -> None:
    served = start_serve()
    ready = runner.invoke(app, ["tail", served.url, "--from", "start", "--limit", "1"])
    assert ready.exit_code == 0
    result = runner.invoke(app, ["tail", served.url, "--from", "01"])
    assert result.exit_code == 5
    assert "reset-required" in result.output


def test_tail_tells_what_an_endpoint_refuses(start_serve: StartServe) -> None:
    served = start_serve("--api-key", "k")
    result = runner.invoke(app, ["tail", served.url, "--from", "start"])
    assert result.exit_code == 5
    assert "401" in result.output


def test_inspect_and_doctor_agree_on_a_running_endpoint(
    start_serve: StartServe, tmp_path: Path, data_file: Path
) -> None:
    served = start_serve()
    runner.invoke(app, ["tail", served.url, "--from", "start", "--limit", "1"])
    live = json.loads(runner.invoke(app, ["inspect", served.url, "--json"]).stdout)
    files = json.loads(runner.invoke(app, ["inspect", str(tmp_path / "state"), "--json"]).stdout)
    assert live["log"]["head"] == files["log"]["head"]
    assert live["stages"]["pipeline"]["verdict"] == "ok"
    assert "generation 1" in runner.invoke(app, ["inspect", str(tmp_path / "state")]).output
    listen = f"127.0.0.1:{served.listening['port']}"
    options = ["doctor", "memory", "--set", f"file={data_file}", "--state", str(tmp_path / "state"), "--listen", listen]
    examined = runner.invoke(app, [*options, "--json"])
    assert examined.exit_code == 0
    found = {finding["check"]: finding["message"] for finding in json.loads(examined.stdout)}
    assert "served by a running endpoint" in found["address"]
    check_digests(served.url, tmp_path / "state", data_file)


def check_digests(url: str, state: Path, data_file: Path) -> None:
    """Of store and log, from the log's files; an address does not say where these are."""
    options = ["inspect", str(state), "--adapter", "memory", "--set", f"file={data_file}"]
    upstream, log = json.loads(runner.invoke(app, [*options, "--json"]).stdout)["holds"]
    assert (upstream["stage"], log["stage"]) == ("upstream", "log")
    assert upstream["tables"] == log["tables"]
    assert runner.invoke(app, options).output.count(log["tables"]["issue"]["digest"]) == 2
    alone = json.loads(runner.invoke(app, ["inspect", str(state), "--digests", "--json"]).stdout)
    assert alone["holds"] == [log]
    refused = runner.invoke(app, ["inspect", url, "--digests"])
    assert refused.exit_code == 2
    assert "no-digests" in refused.output


def test_doctor_tells_everything_wrong_at_once_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    options = ["doctor", "memory", "--set", "file=none.json", "--state", str(tmp_path / "file" / "state")]
    result = runner.invoke(app, [*options, "--listen", "127.0.0.1:0", "--json"])
    wrong = {finding["check"]: finding["fix"] for finding in json.loads(result.stdout) if not finding["ok"]}
    assert set(wrong) >= {"adapter", "state"}
    assert all(wrong.values())
    assert result.exit_code == 2
    assert "FAIL" in runner.invoke(app, options).output


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("127.0.0.1:4810", "ws://127.0.0.1:4810/changes/v0/stream"),
        ("http://h:1/", "ws://h:1/changes/v0/stream"),
        ("wss://h/other?apiKey=k", "wss://h/other?apiKey=k"),
    ],
)
def test_whatever_names_an_endpoint_leads_to_its_stream(given: str, url: str) -> None:
    assert stream_url(given) == url
