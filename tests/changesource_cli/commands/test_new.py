"""A project written by `changesource new` installs and passes its own tests, as it is."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from changesource_cli.app import app
from changesource_sdk.config import load
from tests.docs.fences import FENCE, block, commands
from tests.support.reader import Reader
from tests.support.tools import REPOSITORY

runner = CliRunner()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("new")
    result = runner.invoke(app, ["new", "ticket_store", "--into", str(folder)])
    assert result.exit_code == 0, result.output
    return folder / "ticket_store"


def test_every_file_carries_the_projects_name(project: Path) -> None:
    files = [path for path in project.rglob("*") if path.is_file()]
    found = {str(path.relative_to(project)) for path in files}
    assert {"pyproject.toml", "ticket_store/adapter.py", "tests/test_ticket_store.py", ".gitignore"} <= found
    assert ".github/workflows/test.yml" in found
    for word in ("my_store", "my-store", "MyStore"):
        assert not [path for path in files if word in path.read_text() or word in str(path)], word


def test_the_page_on_projects_names_what_is_there(project: Path) -> None:
    page = (REPOSITORY / "docs" / "how-to" / "start-a-project.md").read_text()
    named = re.findall(r"^\| `([^`]+)` \|", page, re.M)
    assert len(named) > 4
    assert [name for name in named if not (project / name).exists()] == []


def test_it_depends_on_this_distribution(project: Path) -> None:
    described = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    assert described["name"] == "ticket-store"
    assert described["dependencies"] == ["zero-changesource"]


def test_its_configuration_is_one_for_serve(project: Path) -> None:
    config = load(toml=(project / "changesource.toml").read_text(), environment={}, flags={}).config
    assert (config.adapter, config.settings) == ("ticket_store", {"path": "items.jsonl"})


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_installs_and_passes_its_own_tests_as_the_page_says(tmp_path: Path) -> None:
    """In a fresh Python environment, into which this distribution is installed by every line that says how."""
    reader = Reader(tmp_path / "reading")
    reader.isolate()
    reader.run(block("README.md", "pip install"))
    reader.run(block("docs/tutorial.md", "pip install"))
    assert "zero-changesource" in reader.run("cd / && changesource --version --json")
    reader.environment["PYTEST_ADDOPTS"] = "-p no:cacheprovider -n 4"
    told = reader.run(block("docs/how-to/start-a-project.md", "changesource new"), seconds=500)
    assert "conformance of TicketStoreHarness" in told
    assert " 0 broken" in told
    reader.folder /= "ticket_store"
    _, _, check, serve = commands(FENCE.findall((reader.folder / "README.md").read_text())[0][1])
    assert "ok       initial sync" in reader.run(f"{check} --watch 0.5")
    with reader.serve(serve) as address:
        assert "Serve your own store" in reader.run(f"changesource tail {address} --from start --limit 1 --json")


def test_nothing_that_is_there_is_touched(project: Path) -> None:
    before = (project / "README.md").stat().st_mtime_ns
    result = runner.invoke(app, ["new", "ticket_store", "--into", str(project.parent)])
    assert result.exit_code == 2
    assert (project / "README.md").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("name", "hint"), [("Ticket-Store", "ticket_store"), ("class", "ticket_store"), ("../up", "up"), ("1st", "ticket")]
)
def test_a_name_that_python_cannot_import_is_refused(name: str, hint: str, tmp_path: Path) -> None:
    result = runner.invoke(app, ["new", name, "--into", str(tmp_path), "--json"])
    assert result.exit_code == 2
    assert hint in json.loads(result.stderr)["error"]["fix"]
    assert not list(tmp_path.iterdir())
