"""`changesource skip`, and what `inspect`, `doctor` and `verify` say about rows that were left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from adapters.memory import MemoryAdapter, MemoryStore
from changesource_cli.app import app
from changesource_sdk.adapter import Column, Insert, Table
from tests.changesource_sdk.by_difference.shelf import ShelfAdapter, Upstream
from tests.changesource_sdk.pipeline.runner_fixtures import running

runner = CliRunner()
ISSUE = Table("issue", [Column("id", int), Column("n", int)])


def test_a_stopped_pipeline_goes_on_without_the_row_and_inspect_says_who_why_and_what(tmp_path: Path) -> None:
    store, state = MemoryStore([ISSUE]), ["--state", str(tmp_path)]
    with running(lambda: MemoryAdapter(store=store), tmp_path) as seen:
        seen.until_generation(1)
        nothing = runner.invoke(app, ["skip", *state, "--reason", "x"])
        assert nothing.exit_code == 4
        assert "nothing-to-skip" in nothing.output
        store.commit([Insert("issue", {"id": 1, "n": "five"}), Insert("issue", {"id": 2, "n": 2})])
        seen.until(lambda: seen.error_code() == "value-does-not-fit")
        shown = runner.invoke(app, ["inspect", str(tmp_path)]).output
        assert "(table issue, column n (int8), row id=1)" in shown
        assert "behind the upstream (default)" in shown
        skipped = runner.invoke(app, ["skip", *state, "--reason", "ticket 7", "--by", "ops", "--json"])
        assert skipped.exit_code == 0, skipped.output
        assert json.loads(skipped.stdout) == {"position": "1", "table": "issue", "row": "id=1", "by": "ops"}
        seen.until_position(1)
    shown = runner.invoke(app, ["inspect", str(tmp_path)]).output
    assert "dead letters: 1, of issue 1 (left out)" in shown
    assert "issue id=1, column n: left out" in shown
    assert "skipped row id=1 of issue in transaction 1, by ops," in shown
    assert "ticket 7" in shown
    listen = ["--listen", "127.0.0.1:0", "--json"]
    findings = {each["check"]: each for each in json.loads(runner.invoke(app, ["doctor", *state, *listen]).stdout)}
    assert (findings["log"]["level"], findings["log"]["ok"]) == ("warn", True)
    assert "1 rows" in findings["log"]["message"]
    assert findings["java"]["level"] == "ok"


class Listed(ShelfAdapter):
    """Polls often."""

    poll_interval = 0.01


def shown_upstream(output: str) -> str:
    (line,) = [line for line in output.splitlines() if "behind the upstream" in line]
    return line


def test_rows_of_an_upstream_that_is_compared_are_skipped_though_each_attempt_is_another_transaction(
    tmp_path: Path,
) -> None:
    state, memory = tmp_path / "state", str(tmp_path / "digests")
    upstream = ShelfAdapter.upstreams[memory] = Upstream()
    upstream.put(1, "one")
    upstream.put(2, "two")
    with running(lambda: Listed(memory), state) as seen:
        seen.until_generation(1)
        upstream.put(1, 5)  # type: ignore[arg-type]
        upstream.put(2, 6)  # type: ignore[arg-type]
        upstream.put(3, "three")
        for row in ("id=1", "id=2"):
            seen.until(lambda row=row: row in str(seen.stage().get("error")), f"the error of {row}")  # type: ignore[misc]
            skipped = runner.invoke(app, ["skip", "--state", str(state), "--reason", "ticket 7", "--json"])
            assert skipped.exit_code == 0, skipped.output
            assert json.loads(skipped.stdout)["row"] == row
        seen.until(lambda: len(seen.log.kept_aside().skips) == 2, "both rows skipped")
        (position,) = {skip.position for skip in seen.log.kept_aside().skips}
        assert json.loads(position) == seen.log.state().position
        seen.until(lambda: seen.store.requests.pending_skips() == [], "no request")
        assert {letter.row for letter in seen.log.kept_aside().letters} == {"id=1", "id=2"}
        upstream.put(1, "uno")
        seen.until(lambda: {letter.row for letter in seen.log.kept_aside().letters} == {"id=2"}, "row 1 again")
        # The request was about the row's version of then: the next bad one stops the stream again.
        upstream.put(1, 7)  # type: ignore[arg-type]
        seen.until(lambda: "id=1" in str(seen.stage().get("error")), "the error of the next version")
    assert shown_upstream(runner.invoke(app, ["inspect", str(state)]).output).endswith("unknown")
    status = json.loads(runner.invoke(app, ["inspect", str(state), "--json"]).output)
    assert status["upstream"]["default"]["behind"] == status["upstream"]["default"]["behindSeconds"] == "unknown"


@pytest.mark.parametrize("reason", ["", " ", "x" * 1001])
def test_a_reason_is_needed(tmp_path: Path, reason: str) -> None:
    result = runner.invoke(app, ["skip", "--state", str(tmp_path), "--reason", reason])
    assert result.exit_code == 2
    assert "no-reason" in result.output


def test_verify_does_not_compare_rows_that_no_consumer_can_hold(tmp_path: Path) -> None:
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"issue": [{"id": 1, "n": 1}, {"id": 2, "n": "five"}], "note": [{"id": 1}]}))
    state = tmp_path / "state"
    store = MemoryAdapter(str(data)).store
    policy = "dead-letter"

    class Lenient(MemoryAdapter):
        on_bad_value = policy

    with running(lambda: Lenient(store=store), state) as seen:
        seen.until_generation(1)
    options = ["verify", "memory", "--set", f"file={data}", "--state", str(state), "--json"]
    result = runner.invoke(app, options)
    assert result.exit_code == 0, result.output
    (comparison,) = json.loads(result.stdout)
    assert (comparison["same"], comparison["leftOut"]) == (True, 1)


def test_doctor_warns_about_an_open_address_and_succeeds(tmp_path: Path) -> None:
    options = ["doctor", "--state", str(tmp_path), "--listen", "0.0.0.0:0"]
    result = runner.invoke(app, options)
    assert result.exit_code == 0
    assert "WARN keys" in result.output
    assert "fix: set --api-key" in result.output
