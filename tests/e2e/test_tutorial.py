"""The tutorial, step by step as it is printed: from an empty folder to rows on the page, with the official peers.

What it shows is what is run: its shell blocks, its adapter, its `serve` command (on Spark), its settings of zero-cache
and its page, in Node with just enough of a document. Only ports and the database are this machine's.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from changesource_sdk.cli.adapter_choice import resolve
from examples.git_tickets import git_tickets
from tests.support.child_process import ChildProcess
from tests.support.fix_zero_cache import MakeZeroCache
from tests.support.ports import free_port
from tests.support.spark_serving import QUICK_START, SPARK_SECONDS
from tests.support.tools import REPOSITORY, node, node_modules

PAGE = (REPOSITORY / "docs" / "tutorial.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
ADDRESS = "127.0.0.1:4810"
DOCUMENT = """
const element = {replaceChildren: (...items) => console.log(JSON.stringify(items.map(item => item.textContent)))};
globalThis.document = {
  visibilityState: 'visible',
  addEventListener() {},
  createElement: () => ({}),
  querySelector: name => (name === '#tickets' ? element : null),
};
"""


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCKS if kind == language]


def test_the_tutorials_adapter_is_the_example() -> None:
    squeezed = [
        re.sub(r"\n+", "\n", text) for text in ("".join(blocks("python")), Path(git_tickets.__file__).read_text())
    ]
    assert squeezed[0] == squeezed[1]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A shell that knows `changesource` and who commits."""
    command = tmp_path / "bin" / "changesource"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m changesource_sdk.cli "$@"\n')
    command.chmod(0o755)
    someone = {f"GIT_{who}_{what}": "someone" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    path = os.pathsep.join((str(command.parent), os.environ["PATH"]))
    return {**os.environ, **someone, "PATH": path, "PYTHONPATH": str(REPOSITORY)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "empty"
    made.mkdir()
    return made


def run(script: str, folder: Path, environment: dict[str, str]) -> str:
    command = ["bash", "-euo", "pipefail", "-c", script]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@contextmanager
def served(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """The endpoint of the tutorial's own command, on a free port: its address."""
    (command,) = [block.strip() for block in blocks("") if block.startswith("changesource serve")]
    address = f"127.0.0.1:{free_port()}"
    command = f"exec {command.replace(ADDRESS, address)} {shlex.join(QUICK_START)}"
    with ChildProcess(["bash", "-c", command], cwd=folder, env=environment) as process:
        process.wait_for_line("ZERO_UPSTREAM_DB=", seconds=SPARK_SECONDS)
        yield address


def settings_of_zero_cache() -> dict[str, str]:
    return dict(re.findall(r"^export (ZERO_\w+)=(.*)$", PAGE, re.M))


@pytest.fixture
def page(folder: Path) -> Path:
    """The tutorial's page beside the packages that it imports, in a document that prints what it shows."""
    (script,) = blocks("js")
    (folder / "node_modules").symlink_to(node_modules())
    file = folder / "page.mjs"
    file.write_text(DOCUMENT + script.replace("userID: 'me',", "userID: 'me', kvStore: 'mem',"))
    return file


@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_the_tutorial_leads_from_an_empty_folder_to_rows_on_the_page(
    folder: Path, environment: dict[str, str], zero_cache: MakeZeroCache, page: Path
) -> None:
    store, check, commit, project = blocks("sh")
    run(store, folder, environment)
    (folder / "git_tickets.py").write_text(Path(git_tickets.__file__).read_text())
    assert "BROKEN" not in run(check, folder, environment)

    settings = settings_of_zero_cache()
    assert settings["ZERO_UPSTREAM_TYPE"] == "custom"
    with served(folder, environment) as address:
        cache = zero_cache(settings["ZERO_UPSTREAM_DB"].replace(ADDRESS, address)).start(seconds=SPARK_SECONDS)
        page.write_text(page.read_text().replace("http://127.0.0.1:4848", cache.url))
        with ChildProcess([node(), page], cwd=folder) as shown:
            shown.wait_for_line('["Write the adapter"]')
            run(commit, folder, environment)
            shown.wait_for_line('["Show it to someone"]')
            assert '["Show it to someone","Write the adapter"]' not in shown.lines, "half of the commit was shown"
        assert cache.exits == []

    run(project, folder, environment)
    assert (folder / "ticket_store" / "pyproject.toml").exists()


def test_what_the_tutorial_serves_is_named_as_adapters_are() -> None:
    (named,) = set(re.findall(r"changesource (?:serve|check) (\S+)", PAGE))
    assert resolve(named) == named
