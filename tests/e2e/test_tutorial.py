"""The tutorial, step by step as it is printed: from an empty folder to rows on the page, with the official peers.

What it shows is what is run: its shell blocks, its adapter, its `serve` command (on Spark), zero-cache with its
settings, its page, bundled by esbuild and shown by Chromium. Only ports and the database are this machine's, and npm
finds the packages in its folder and a registry on this machine.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from contextlib import ExitStack
from pathlib import Path

import pytest

from changesource_cli.adapter_choice import resolve
from examples.git_tickets import git_tickets
from tests.docs.fences import ROOT, block, blocks, blocks_of, commands
from tests.support.peers.browser import open_page, running_browser, until
from tests.support.peers.npm_registry import bring_packages, npm_registry
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.spark_serving import QUICK_START, SPARK_SECONDS
from tests.support.peers.zero_cache import QUIET, READY_LINE, SYNC_SECONDS, own_task_id
from tests.support.ports import free_port
from tests.support.reader import Reader, wait_for_page
from tests.support.tools import node, npm_program

PAGE = "docs/tutorial.md"
TOLD = "[...document.querySelectorAll('#tickets li')].map(item => item.textContent)"
WATCH = f"""window.shown = [];
new MutationObserver(() => window.shown.push({TOLD}))
  .observe(document.querySelector('#tickets'), {{childList: true}})"""
BEFORE, AFTER = ["Write the adapter"], ["Show it to someone"]
ADAPTER = Path(git_tickets.__file__).read_text()


def test_the_tutorials_adapter_is_the_example() -> None:
    printed = "".join(block.text for block in blocks_of(PAGE) if block.language == "python")
    squeezed = [re.sub(r"\n+", "\n", text) for text in (printed, ADAPTER)]
    assert squeezed[0] == squeezed[1]


@pytest.fixture
def reader(tmp_path: Path, postgres: PostgresServer) -> Reader:
    """Somebody in an empty folder, with Spark, a Postgres, and a shell that has npm's packages."""
    ports = {port: str(free_port()) for port in ("4810", "4848", "8000")}
    database = postgres.create_database("tutorial")
    places = {
        "postgres://postgres:pass@127.0.0.1:5432/postgres": database,
        **{f"127.0.0.1:{printed}": f"127.0.0.1:{port}" for printed, port in ports.items()},
        "http.server 8000": f"http.server {ports['8000']}",
    }
    made = Reader(tmp_path / "empty", runner="spark", places=places)
    npm, asked = npm_program()
    made.add_program("npm", f'PATH="{asked.get("PATH", "$PATH")}" exec "{npm}" "$@"')
    made.add_program("npx", 'program="node_modules/.bin/$1"; shift; exec "$program" "$@"')
    made.add_program("node", f'exec "{node()}" "$@"')
    made.environment |= (
        QUIET | own_task_id() | {"ZERO_PORT": ports["4848"], "ZERO_CHANGE_STREAMER_PORT": str(free_port())}
    )
    bring_packages(made.folder)
    return made


def serve(reader: Reader, stack: ExitStack) -> None:
    """Steps 6 and 7: the endpoint, a look at its stream, and the official cache."""
    command = block(PAGE, "changesource serve").strip()
    stack.enter_context(reader.serve(f"{command} {shlex.join(QUICK_START)}", seconds=SPARK_SECONDS))
    tail = block(PAGE, "changesource tail").strip()
    assert "Write the adapter" in reader.run(f"{tail} --limit 1")
    npm, *exports, cache = commands(block(PAGE, "npm install"))
    with npm_registry() as asked:
        reader.run(f"export {shlex.join(f'{name}={value}' for name, value in asked.items())}\n{npm}")
    reader.export("\n".join(exports))
    stack.enter_context(reader.start(cache, READY_LINE, seconds=SYNC_SECONDS))


def publish(reader: Reader, stack: ExitStack) -> str:
    """Step 8: the page, bundled, at an address."""
    reader.write("page.js", block(PAGE, "import {Zero"))
    reader.write("index.html", block(PAGE, "<!doctype html>"))
    bundle, server = commands(block(PAGE, "npx esbuild"))
    reader.run(bundle)
    stack.enter_context(reader.start(f"{server} --bind 127.0.0.1"))
    address = reader.here("http://127.0.0.1:8000")
    wait_for_page(address)
    return address


@pytest.mark.e2e
@pytest.mark.timeout(600)
async def test_the_tutorial_leads_from_an_empty_folder_to_rows_on_the_page(reader: Reader) -> None:
    reader.run(block(PAGE, "git init"))
    reader.write("git_tickets.py", "\n".join(blocks(PAGE, "python")))
    assert "BROKEN" not in reader.run(block(PAGE, "changesource check"))
    with ExitStack() as stack:
        serve(reader, stack)
        address = publish(reader, stack)
        async with running_browser() as browser:
            page = await open_page(browser, address)
            await until(page, f"{TOLD}.join() === '{BEFORE[0]}'")
            await page.evaluate(WATCH)
            await asyncio.to_thread(reader.run, block(PAGE, "echo"))
            await until(page, f"{TOLD}.join() === '{AFTER[0]}'")
            shown = await page.evaluate("window.shown")
            assert shown[-1] == AFTER
            assert [each for each in shown if each not in (BEFORE, AFTER)] == [], "half of the commit was shown"
    reader.run(block(PAGE, "changesource new"))
    assert (reader.folder / "ticket_store" / "pyproject.toml").exists()


def test_what_the_tutorial_serves_is_named_as_adapters_are() -> None:
    (named,) = set(re.findall(r"changesource (?:serve|check) (\S+)", (ROOT / PAGE).read_text()))
    assert resolve(named) == named
