"""`make lock`: write `requirements.lock`, the pinned packages of every extra that users install, with their hashes.

`pip install --require-hashes -r requirements.lock` then installs the files that were published under these versions
and no others. The versions come from `constraints.txt`; run this after changing it.
"""

from __future__ import annotations

import re
import subprocess
import venv
from pathlib import Path

from tests.support.tools import REPOSITORY, TOOLS

UV = "uv==0.13.8"
EXTRAS = ("cache", "iceberg", "kafka", "mysql", "postgres", "spark")
CONSTRAINTS = REPOSITORY / "constraints.txt"
LOCK = REPOSITORY / "requirements.lock"

_PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;]+)", re.MULTILINE)


def pinned(text: str) -> dict[str, str]:
    """Versions by package name, of a file of requirements."""
    return {name.lower().replace("_", "-"): version for name, version in _PINNED.findall(text)}


def write_lock() -> None:
    """Resolve the extras under the constraints, for every platform. Raises `CalledProcessError` if that fails."""
    command: list[str | Path] = [_uv(), "pip", "compile", "pyproject.toml", "--constraint", CONSTRAINTS]
    command += [word for extra in EXTRAS for word in ("--extra", extra)]
    command += ["--universal", "--python-version", "3.11", "--generate-hashes", "--system-certs"]
    # No host of an index in the file: it is installed from wherever pip is set up to look.
    command += ["--no-header", "--no-annotate", "--no-emit-index-url", "--quiet", "--output-file", LOCK]
    subprocess.run(command, cwd=REPOSITORY, check=True)


def _uv() -> Path:
    folder = TOOLS / "uv"
    if not (folder / "bin" / "uv").exists():
        print(f"tools: installing {UV} into {folder}", flush=True)
        venv.create(folder, with_pip=True)
        subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", UV], check=True)
    return folder / "bin" / "uv"


if __name__ == "__main__":
    write_lock()
    print(f"lock: {len(pinned(LOCK.read_text()))} packages in {LOCK.name}")
