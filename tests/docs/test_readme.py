"""The README's adapter runs as printed, and what the README names is there."""

from __future__ import annotations

import json
import re
from pathlib import Path

from typer.testing import CliRunner

from changesource_cli.app import NAMES, app
from tests.changesource_sdk.pipeline.runner_fixtures import running
from tests.docs.fences import as_module, block, blocks_of

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_adapter_in_the_readme_syncs_a_snapshot_and_changes(tmp_path: Path) -> None:
    store = tmp_path / "todo.jsonl"
    store.write_text(
        '{"id": "a", "title": "write", "done": false}\n{"id": "b", "title": "read", "done": true}\n{"id": "b"}\n'
    )
    adapter = as_module(block("README.md", '"""A to-do list'), tmp_path / "todo_file.py")
    with running(lambda: adapter.TodoFile(store), tmp_path / "state") as seen:
        seen.until_generation(1)
        inserted = [json.loads(p)[1]["new"] for p in seen.snapshot_payloads() if b'"insert"' in p]
        assert inserted == [{"id": "a", "title": "write", "done": False}]
        with store.open("a") as file:
            file.write('{"id": "a", "title": "rewrite", "done": true}\n{"id": "a"}\n')
        seen.until_position(5)
        changes = [json.loads(p)[1] for p in seen.log_payloads()]
        assert [change["tag"] for change in changes if "relation" in change] == ["insert", "delete"]


def test_the_adapter_in_the_readme_is_as_short_as_promised() -> None:
    (source,) = [block.text for block in blocks_of("README.md") if block.language == "python"]
    assert len(source.splitlines()) <= 30


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 120


def test_every_command_the_readme_names_exists() -> None:
    named = set(re.findall(r"`changesource ([a-z]+)", README)) | set(
        re.findall(r"^changesource ([a-z]+)", README, re.M)
    )
    assert named
    assert named <= set(NAMES)


def test_every_make_target_the_readme_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make ([a-z]+)", README, re.M):
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_every_file_the_readme_links_to_exists() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_command_has_help_with_an_example() -> None:
    for name in NAMES:
        shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"})
        assert shown.exit_code == 0
        assert f"changesource {name}" in shown.stdout
