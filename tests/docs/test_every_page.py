"""What holds for every page: its links lead somewhere, its commands exist, and what can be run is run by a test."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import typer

from changesource_cli.app import app
from tests.docs.fences import ROOT, blocks, blocks_of, execute, pages, taken

pytest_plugins = ["pytester"]

PAGES = pages()
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
NOT_RUN = {
    (
        "README.md",
        "make demo",
    ): "it is how these tests are started; the demo has tests of its own (tests/changesource_demo)",
    ("docs/how-to/watch-the-demo.md", "make demo"): "the same command is started by tests/changesource_demo",
    (
        "docs/how-to/cluster.md",
        "changesource serve sqlite --set path=/mnt/app.db --role pipeline --master yarn",
    ): "they need a YARN and a Kubernetes cluster, and the page says so; a standalone cluster's commands are run",
    ("CONTRIBUTING.md", "make setup"): "the same; test_readme.py asks for every target that is named",
}
"""Blocks that can be run and are not, by page and opening, each with the reason."""


def excused() -> list[tuple[str, str]]:
    """What is not run, with its page."""
    named = [(page, block) for page, opening in NOT_RUN for block in blocks_of(page) if block.text.startswith(opening)]
    return [(page, part) for page, block in named for part in block.parts]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", PAGES[page]) if "://" not in link]
    assert [link for link in links if link and not (ROOT / page).parent.joinpath(link).exists()] == []


def test_every_page_of_the_site_is_in_its_navigation() -> None:
    listed = re.findall(r"^ +- .*: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert sorted(f"docs/{page}" for page in listed) == [page for page in PAGES if page.startswith("docs/")]


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_their_options_exist(page: str) -> None:
    for block in blocks_of(page):
        for line in re.findall(r"^(?:\$ )?changesource (.*)", block.text.replace("\\\n", " "), re.M):
            command, *words = shlex.split(line.replace("…", "x").removesuffix("&"), comments=True)
            known = {
                name for parameter in COMMANDS[command].params for name in (*parameter.opts, *parameter.secondary_opts)
            }
            assert [word for word in words if word.startswith("--") and word not in known] == [], line


def test_every_block_that_can_be_run_is_run() -> None:
    run = taken() | set(excused())
    runnable = [block for page in PAGES for block in blocks_of(page) if block.can_be_run]
    left = [(block.page, part) for block in runnable for part in block.parts if (block.page, part) not in run]
    assert left == [], "take it with fences.block(page, opening) in a test that runs it, or give a reason in NOT_RUN"


def test_no_excuse_is_left_over() -> None:
    for page, opening in NOT_RUN:
        assert len([block for block in blocks_of(page) if block.text.startswith(opening)]) == 1, (page, opening)
    assert [part for part in excused() if part in taken()] == []


def test_what_is_taken_must_run(pytester: pytest.Pytester) -> None:
    """A test that only looks, or asks for settings instead of running, fails by the rule of `receipts`."""
    pytester.makepyfile(
        """
        from tests.docs.fences import block, command, execute, ran

        def test_takes_and_leaves(): block("docs/tutorial.md", "git init")
        def test_takes_and_looks(): ran(command("docs/tutorial.md", "changesource check") + " --show-config")
        def test_runs(): ran("cd x && " + command("docs/tutorial.md", "changesource check"))
        """
    )
    pytester.runpytest_inprocess("-p", "tests.docs.receipts").assert_outcomes(passed=1, failed=2)


def test_the_code_of_the_contract_runs() -> None:
    names: dict[str, Any] = {"__name__": "a_page"}
    for text in blocks("docs/reference/adapter.md", "python"):
        execute(text, names)
    assert "by_hand" in names
