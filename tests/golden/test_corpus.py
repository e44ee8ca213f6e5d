"""The committed corpus: on every source, strictly; with flips planned and everywhere; with pauses.

`run.py` runs every combination.
"""

import gzip
import json
from pathlib import Path

import pytest

from tests.golden.compare import key_text
from tests.golden.engine_cases import Setting, run_multi, run_queries, run_scenarios
from tests.golden.run import main
from tests.support.workloads.tables import SOURCE_KINDS, SourceKind

CORPUS = Path(__file__).parent / "corpus"

SETTINGS = [
    Setting("memory", strict=True),
    Setting("sqlite", strict=True),
    Setting("followed", strict=True),
    Setting("sqlite", "planned"),
    Setting("followed", "all"),
    Setting("memory", "all", paused=True),
]


def name_of(setting: Setting) -> str:
    return f"{setting.source}-{setting.flips}{'-paused' if setting.paused else ''}"


@pytest.mark.parametrize("setting", SETTINGS, ids=name_of)
def test_queries_give_the_recorded_results(setting: Setting) -> None:
    assert run_queries(CORPUS, setting) == (320, [])


@pytest.mark.parametrize("setting", SETTINGS, ids=name_of)
def test_scenarios_give_the_recorded_changes_and_results(setting: Setting) -> None:
    assert run_scenarios(CORPUS, setting) == (160, [])


@pytest.mark.parametrize("source", SOURCE_KINDS)
def test_queries_that_share_sources_do_not_disturb_each_other(source: SourceKind) -> None:
    assert run_multi(CORPUS, Setting(source)) == (20, [])


def test_the_runner_fails_on_a_wrong_expectation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = json.loads(gzip.decompress((CORPUS / "queries.jsonl.gz").read_bytes()).splitlines()[0])
    first["result"][0]["title"] = "not so"
    (tmp_path / "queries.jsonl").write_text(json.dumps(first))
    (tmp_path / "datasets").symlink_to(CORPUS / "datasets")
    assert main([str(tmp_path), "--source", "memory", "--flips", "given"]) == 1
    assert "total: 0 passed, 1 failed" in capsys.readouterr().out


def test_the_runner_refuses_a_directory_without_a_corpus(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 2


def test_numbers_in_row_keys_are_written_as_javascript_does() -> None:
    assert key_text([1e-7, 1.0, 1e21, "a"]) == '[1e-7,1,1e+21,"a"]'
