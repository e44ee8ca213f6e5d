"""What holds for every page: its links lead somewhere, its commands exist, and its code is run by a test."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from changesource_sdk.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = {str(path.relative_to(ROOT)): path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]}
TESTS = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
RUN_HERE = ("docs/reference/adapter.md",)
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def blocks(page: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w*)[^\n]*\n(.*?)^```", PAGES[page], re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", PAGES[page]) if "://" not in link]
    assert [link for link in links if link and not (ROOT / page).parent.joinpath(link).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_their_options_exist(page: str) -> None:
    for _, text in blocks(page):
        for line in re.findall(r"^(?:\$ )?changesource (.*(?:\\\n.*)*)", text, re.M):
            command, *words = shlex.split(line.replace("\\\n", " ").replace("…", "x"), comments=True)
            known = {
                name for parameter in COMMANDS[command].params for name in (*parameter.opts, *parameter.secondary_opts)
            }
            assert [word for word in words if word.startswith("--") and word not in known] == [], line


@pytest.mark.parametrize("page", [page for page in PAGES if any(kind == "python" for kind, _ in blocks(page))])
def test_code_is_run_by_a_test(page: str) -> None:
    assert page in RUN_HERE or Path(page).name in TESTS, f"no test runs the code of {page}"


@pytest.mark.parametrize("page", RUN_HERE)
def test_code_without_a_test_of_its_own_runs(page: str) -> None:
    names: dict[str, Any] = {"__name__": "a_page"}
    for kind, text in blocks(page):
        if kind == "python":
            exec(compile(text, page, "exec", dont_inherit=True), names)
    assert len(names) > 1
