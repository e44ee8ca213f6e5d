"""`changesource check` and `tail --validate`, on endpoints of others and on adapters of ours."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from changesource_cli.app import app
from changesource_cli.commands.check import _gather, is_endpoint
from changesource_sdk.checking import endpoint_cases
from changesource_sdk.checking.verdict import CheckVerdict, Finding
from changesource_sdk.testing.conformance import CASES
from protocol import rules
from tests.changesource_sdk.checking.plain_endpoint import TRANSACTIONS, NoPermissions, NumbersForTexts, PlainEndpoint
from tests.support.fixtures.serving import MakeServing, MakeStore

runner = CliRunner()
SHORT = [case for case in CASES if case.name in ("tables", "values-in-changes")]
HALF = """
from changesource_sdk import Column, Insert, RowsPartition, Snapshot, Table

class Store:
    def tables(self):
        return [Table("t", [Column("id", int)])]

    def snapshot(self):
        return Snapshot(0, [RowsPartition("t", [{"id": 1}])])

    def changes(self, after):
        yield Insert("t", {"id": 2})
"""
QUICK = ("--watch", "1")


@pytest.fixture
def right(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An endpoint of which a check need not watch more than it has to show."""
    monkeypatch.setattr(endpoint_cases, "MOST_TRANSACTIONS", TRANSACTIONS)
    with PlainEndpoint().running() as url:
        yield url


@pytest.fixture
def without_permissions() -> Iterator[str]:
    with NoPermissions().running() as url:
        yield url


def test_a_right_endpoint_is_told_case_by_case(right: str) -> None:
    result = runner.invoke(app, ["check", right, *QUICK, "--resets"])
    assert result.exit_code == 0, result.output
    assert "ok       resume: from 4 watermarks" in result.output
    assert result.output.splitlines()[-1] == "10 ok"


def test_what_may_reset_consumers_is_asked_only_on_request(right: str) -> None:
    result = runner.invoke(app, ["check", right, *QUICK])
    assert result.exit_code == 0
    assert "not seen ahead of the log: left out" in result.output


def test_a_broken_rule_is_told_with_frame_fix_and_docs(without_permissions: str, tmp_path: Path) -> None:
    transcript = tmp_path / "transcript.jsonl"
    result = runner.invoke(app, ["check", without_permissions, *QUICK, "--transcript", str(transcript)])
    assert result.exit_code == 1
    lines = transcript.read_bytes().splitlines()
    first = rules.check(lines)[0]
    assert f"[permissions-row] {first.message}" in result.output
    assert f'frame {first.frame}: ["commit"' in result.output
    assert "fix: insert one row" in result.output
    assert "see docs/reference/rules.md#permissions-row" in result.output


def test_machines_get_one_document(without_permissions: str) -> None:
    result = runner.invoke(app, ["check", without_permissions, *QUICK, "--json"])
    document = json.loads(result.stdout)
    assert (result.exit_code, document["ok"]) == (1, False)
    (finding,) = document["verdicts"][0]["findings"]
    assert finding["rule"] == "permissions-row"
    assert finding["doc"].endswith("#permissions-row")
    assert finding["text"].startswith('["commit"')


def test_an_endpoint_in_use_can_be_checked_without_acks(right: str, tmp_path: Path) -> None:
    transcript = tmp_path / "transcript.jsonl"
    result = runner.invoke(app, ["check", right, *QUICK, "--no-acks", "--transcript", str(transcript)])
    assert result.exit_code == 0
    directions = {json.loads(line).get("direction") for line in transcript.read_text().splitlines()}
    assert directions == {None, "down"}


def test_an_endpoint_that_is_not_there_is_no_verdict() -> None:
    result = runner.invoke(app, ["check", "127.0.0.1:1", "--json"])
    assert result.exit_code == 5
    assert json.loads(result.stderr)["error"]["code"] == "unreachable"


def test_an_endpoint_takes_no_settings(right: str) -> None:
    result = runner.invoke(app, ["check", right, "--set", "a=b"])
    assert result.exit_code == 2


def test_an_adapter_is_checked_through_a_pipeline_of_its_own(data_file: Path) -> None:
    result = runner.invoke(app, ["check", "memory", "--set", f"file={data_file}", "--watch", "0.2"])
    assert result.exit_code == 0, result.output
    assert "ok       picklable: the adapter can be sent to another process" in result.output
    assert "not seen writing cases" in result.output
    assert "ok       initial sync: 3 rows" in result.output
    assert "ok       ahead of the log" in result.output
    assert "not seen resume: no transaction came" in result.output


def test_an_adapter_that_fails_ends_the_check_with_its_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "class Store:\n    tables = snapshot = changes = lambda self, *a: 1 // 0\n"
    (tmp_path / "failing_store.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    result = runner.invoke(app, ["check", "failing_store:Store", "--json"])
    assert result.exit_code == 1
    verdicts = {verdict["case"]: verdict for verdict in json.loads(result.stdout)["verdicts"]}
    (finding,) = verdicts["tables"]["findings"]
    assert "failing_store.py line 2" in finding["message"]
    assert verdicts["stream"]["outcome"] == "not seen"


def test_an_adapter_that_fails_only_in_the_stream_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_store.py").write_text(HALF)
    monkeypatch.syspath_prepend(str(tmp_path))
    result = runner.invoke(app, ["check", "half_store:Store", "--watch", "0.3"])
    assert result.exit_code == 1
    assert "BROKEN" in result.output
    assert "an Insert instead of a Transaction" in result.output


def test_a_harness_is_put_through_the_whole_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("changesource_cli.checks.suite_check.CASES", SHORT)
    result = runner.invoke(app, ["check", "tests.conformance.memory_harness:MemoryHarness"])
    assert result.exit_code == 0, result.output
    assert "ok       values-in-changes: values and nulls arrive through changes" in result.output


@pytest.mark.parametrize(
    ("target", "answer"), [("ws://h/x", True), ("h:4810", True), ("sqlite", False), ("module:Class", False)]
)
def test_endpoints_and_adapters_are_told_apart(target: str, answer: bool) -> None:
    assert is_endpoint(target) is answer


def test_tail_can_judge_what_it_prints(right: str) -> None:
    result = runner.invoke(app, ["tail", right, "--from", "start", "--limit", "1", "--validate"])
    assert result.exit_code == 0, result.output


def test_tail_tells_a_broken_rule_after_its_frame() -> None:
    with NumbersForTexts().running() as url:
        runner.invoke(app, ["check", url, *QUICK])
        result = runner.invoke(app, ["tail", url, "--from", "12s", "--limit", "1", "--validate", "--json"])
        whole = runner.invoke(app, ["tail", url, "--limit", "1", "--validate"])
    assert result.exit_code == 0, "without the snapshot the column's type is not known"
    assert whole.exit_code == 1
    assert "[value-type] item.name" in whole.stderr
    assert "docs/reference/rules.md#value-type" in whole.stderr


def test_our_own_endpoint_passes_while_its_store_is_written_to(serving: MakeServing, store: MakeStore) -> None:
    database = store("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, doc JSON)")
    database.insert("item", [(number, f"name {number}", '{"n": [1]}') for number in range(100)])
    endpoint = serving(database).start()
    done = threading.Event()

    def write() -> None:
        for number in itertools.count(1000):
            database.insert("item", [(number, "new", "[]")])
            database.run(f"UPDATE item SET id = id + 100000, name = 'moved' WHERE id = {number - 5}")
            database.run(f"DELETE FROM item WHERE id = {number - 950}")
            if done.wait(0.05):
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        result = runner.invoke(app, ["check", endpoint.stream_url, "--watch", "3", "--resets"])
    finally:
        done.set()
        writer.join()
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-1] == "10 ok", result.output


LOCKED = """
from changesource_sdk import AdapterError

class Store:
    def __init__(self, password):
        self.password = password

    def tables(self):
        raise AdapterError("login-refused", "the login is refused", "db:5432", "correct the login")

    snapshot = changes = lambda self, *a: self.tables()
"""


def test_a_refused_login_is_one_failure_and_settings_come_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "locked_store.py").write_text(LOCKED)
    (tmp_path / "config.toml").write_text('adapter = "locked_store:Store"\n[set]\npassword = "x"\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    result = runner.invoke(app, ["check", "--config", str(tmp_path / "config.toml")])
    assert result.exit_code == 1
    assert result.output.count("login-refused") == 1
    assert result.output.splitlines()[-1] == "1 broken, 1 not seen"
    monkeypatch.setenv("CHANGESOURCE_SET_PASSWORD", "y")
    assert runner.invoke(app, ["check", "locked_store:Store"]).output.count("login-refused") == 1


async def test_cases_that_fail_for_the_same_reason_are_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    async def stream() -> AsyncIterator[CheckVerdict]:
        for number in range(35):
            finding = Finding("order", "commit() failed: the store refuses this", own_page="docs")
            yield CheckVerdict(f"case {number}", "broken", "a rule", (finding,))

    assert len(await _gather(stream(), as_json=False)) == 35
    printed = capsys.readouterr().out
    assert printed.count("the store refuses this") == 1
    assert "34 more cases, for the same reason as case 0: case 1, case 2" in printed
