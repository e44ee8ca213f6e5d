"""A reader of the documents: a folder and a shell in which what a page prints can be typed as it stands.

The shell knows `changesource`, `python`, `pytest` and who commits. Pipelines run in process unless `runner` says
otherwise, because a page about something else need not wait for Java. `places` says what stands here for the hosts,
ports and folders that a page names. Contract: `run` returns what commands printed, and fails with it; `start` runs one
that goes on, and ends it, with all its descendants, at the end of the context; both give the receipts for what a test
took from a page (`tests.docs.fences`).
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

from tests.docs.fences import commands, ran
from tests.support.child_process import ChildProcess
from tests.support.ports import free_port
from tests.support.tools import REPOSITORY
from tests.support.waiting import until

PROGRAMS = {"changesource": "-m changesource_cli", "python": "", "python3": "", "pytest": "-m pytest"}
OFFLINE = ("--no-build-isolation", "--no-index")
RUN_SECONDS = 240
READY_SECONDS = 240


class Reader:
    """`folder` is where the shell is; what is there at the start is what the page takes for granted."""

    def __init__(self, folder: Path, *, runner: str = "inline", places: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.places = dict(places or {})
        self._written: list[str] = []
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
        """Give the shell a Python environment of its own, in which this project is not installed, and a `pip` for it.

        The project comes from a wheel built of this tree. Its dependencies are there already, as an environment has
        them that somebody works in, and pip fetches nothing: one that the project does not declare right is an error.
        """
        home = self._programs / "python-home"
        venv.create(home, symlinks=True)
        wheels, others = home / "wheels", home / "others"
        build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", *OFFLINE, "--wheel-dir", str(wheels)]
        subprocess.run([*build, str(REPOSITORY)], check=True, timeout=RUN_SECONDS)
        others.mkdir()
        for package in (path for folder in site.getsitepackages() for path in Path(folder).iterdir()):
            if not package.name.startswith(("zero_changesource", "_zero_changesource", "__editable__")):
                (others / package.name).symlink_to(package)
        (next(home.glob("lib/*/site-packages")) / "others.pth").write_text(f"{others}\n")
        (self._programs / "changesource").unlink()
        for name in ("python", "python3", "pytest"):
            self.add_program(name, f'exec "{home / "bin" / "python"}" {PROGRAMS[name]} "$@"')
        pip = f'"{sys.executable}" -m pip --quiet --disable-pip-version-check --python "{home / "bin" / "python"}"'
        self.add_program("pip", f'shift; exec {pip} install {" ".join(OFFLINE)} --find-links "{wheels}" "$@"')
        del self.environment["PYTHONPATH"]
        self.environment["PATH"] = f"{self._programs}{os.pathsep}{home / 'bin'}{os.pathsep}{os.environ['PATH']}"

    def here(self, script: str) -> str:
        """What a page prints, with this machine's places."""
        for printed, place in self.places.items():
            script = script.replace(printed, place)
        return script

    def write(self, name: str, text: str) -> None:
        """Put a file there; it was used once something is typed after it."""
        (self.folder / name).write_text(self.here(text))
        self._written.append(text)

    def export(self, lines: str) -> None:
        """Set the variables that a page sets, `export` or not, for everything that is typed afterwards."""
        for line in commands(lines):
            pairs = [pair.split("=", 1) for pair in self.here(line).removeprefix("export ").split()]
            self.environment |= dict(pairs)
        self._written.append("\n".join(commands(lines)))

    def _receipt(self, script: str) -> None:
        for text in (*self._written, "\n".join(commands(script))):
            ran(text)

    def run(self, script: str, *, seconds: float = RUN_SECONDS) -> str:
        command = ["bash", "-euo", "pipefail", "-c", self.here(script)]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=seconds
        )
        assert done.returncode == 0, done.stdout + done.stderr
        self._receipt(script)
        return done.stdout

    @contextmanager
    def start(self, command: str, says: str = "", *, seconds: float = READY_SECONDS) -> Iterator[ChildProcess]:
        """Run a command (also one with `&`) until the context ends, once it printed a line with `says`, if any."""
        settings = re.match(r"(?:[A-Z_]+=\S+ )*", command)
        assert settings is not None
        line = self.here(f"{settings[0]}exec {command[settings.end() :].removesuffix('&')}")
        with ChildProcess(["bash", "-c", line], cwd=self.folder, env=self.environment) as process:
            if says:
                process.wait_for_line(says, seconds=seconds)
            self._receipt(command)
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
        with urllib.request.urlopen(url, timeout=60) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
