"""A reader of the documents: a folder and a shell in which what a page prints can be typed as it stands.

The shell knows `changesource`, `python`, `pytest` and who commits. Pipelines run in process unless `runner` says
otherwise, because a page about something else need not wait for Java. `places` says what stands here for the hosts,
ports and folders that a page names. Contract: `run` returns what commands printed, and fails with it; `start` runs one
that goes on, and ends it, with all its descendants, at the end of the context.
"""

from __future__ import annotations

import os
import re
import site
import subprocess
import sys
import urllib.request
import venv
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.child_process import ChildProcess
from tests.support.ports import free_port
from tests.support.tools import REPOSITORY
from tests.support.waiting import until

PROGRAMS = {"changesource": "-m changesource_sdk.cli", "python": "", "python3": "", "pytest": "-m pytest"}
RUN_SECONDS = 120
READY_SECONDS = 120


class Reader:
    """`folder` is where the shell is; what is there at the start is what the page takes for granted."""

    def __init__(self, folder: Path, *, runner: str = "inline", places: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.places = dict(places or {})
        self._programs = folder.parent / f"{folder.name}-bin"
        self._programs.mkdir(parents=True)
        folder.mkdir(exist_ok=True)
        for name, arguments in PROGRAMS.items():
            self.add_program(name, f'exec "{sys.executable}" {arguments} "$@"')
        someone = {f"GIT_{who}_{what}": "someone" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        path = os.pathsep.join((str(self._programs), os.environ["PATH"]))
        self.environment = {
            **os.environ,
            **someone,
            "PATH": path,
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONUNBUFFERED": "1",
            "CHANGESOURCE_RUNNER": runner,
            "CHANGESOURCE_LISTEN": f"127.0.0.1:{free_port()}",
        }

    def add_program(self, name: str, script: str) -> None:
        """Let the shell know one more program."""
        program = self._programs / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def isolate(self) -> None:
        """Give the shell a Python environment of its own, and a `pip` that fetches nothing.

        What it installs is copied even if that is to be editable, since that would take one more build tool.
        """
        home = self._programs / "python-home"
        venv.create(home, symlinks=True)
        python = home / "bin" / "python"
        sees = [str(REPOSITORY), *site.getsitepackages()]
        (next(home.glob("lib/*/site-packages")) / "parent.pth").write_text("\n".join(sees))
        for name, arguments in PROGRAMS.items():
            self.add_program(name, f'exec "{python}" {arguments} "$@"')
        pip = f'"{sys.executable}" -m pip --quiet --disable-pip-version-check --python "{python}"'
        offline = "--no-deps --no-build-isolation --no-index"
        self.add_program("pip", f'shift; [ "$1" != -e ] || shift; exec {pip} install {offline} "$@"')

    def here(self, script: str) -> str:
        """What a page prints, with this machine's places."""
        for printed, place in self.places.items():
            script = script.replace(printed, place)
        return script

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(self.here(text))

    def run(self, script: str, *, seconds: float = RUN_SECONDS) -> str:
        command = ["bash", "-euo", "pipefail", "-c", self.here(script)]
        ran = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=seconds
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    @contextmanager
    def start(self, command: str, says: str = "", *, seconds: float = READY_SECONDS) -> Iterator[ChildProcess]:
        """Run a command until the end of the context, once it has printed a line that holds `says`, if anything."""
        settings = re.match(r"(?:[A-Z_]+=\S+ )*", command)
        assert settings is not None
        line = self.here(f"{settings[0]}exec {command[settings.end() :]}")
        with ChildProcess(["bash", "-c", line], cwd=self.folder, env=self.environment) as process:
            if says:
                process.wait_for_line(says, seconds=seconds)
            yield process

    @contextmanager
    def serve(self, command: str, *, seconds: float = READY_SECONDS) -> Iterator[str]:
        """Run `changesource serve …` until the end of the context, once a consumer can be served: its address."""
        listen = re.search(r"--listen (\S+)", self.here(command))
        address = (listen[1] if listen else self.environment["CHANGESOURCE_LISTEN"]).replace("0.0.0.0", "127.0.0.1")
        with self.start(command, "ZERO_UPSTREAM_DB=", seconds=seconds) as process:

            def alive() -> None:
                assert process.running, process.tail()

            wait_for_page(f"http://{address}/readyz", seconds=seconds, alive=alive)
            yield address


def wait_for_page(url: str, *, seconds: float = READY_SECONDS, alive: Callable[[], None] | None = None) -> None:
    """Wait until a page is there and says 200."""
    until(lambda: _answers(url), f"{url} to answer", seconds=seconds, alive=alive)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def commands(block: str) -> list[str]:
    """The commands of a block, one by one: without prompts and comments, continued lines joined."""
    lines = block.replace("\\\n", " ").splitlines()
    return [re.sub(r"\s+#\s.*$", "", line).removeprefix("$ ").strip() for line in lines if line.strip()]
