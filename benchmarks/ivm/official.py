"""Runs `official.mjs` under Node, if Node and the packages can be found.

Looked for in this order: the `--node-modules` option, what `make setup` installed (`.tools`, or `TEST_TOOLS`),
`node_modules` upwards from the working folder.  The folder must hold `@rocicorp/zero`; Node is the folder's own `node`
package if it has one, else the first `node` on the path.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("official.mjs")


@dataclass(frozen=True, slots=True)
class Node:
    """A Node program and the packages it is to use."""

    program: Path
    packages: Path

    def measure(self, workload: Path, source: str, pipelines: list[str], repeat: int) -> list[dict[str, Any]]:
        """One record per pipeline and repeat."""
        command = [str(self.program), str(SCRIPT), "--node-modules", str(self.packages), "--workload", str(workload)]
        command += ["--source", source, "--pipelines", ",".join(pipelines), "--repeat", str(repeat)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        return [json.loads(line) for line in done.stdout.splitlines()]


def find_node(packages: Path | None) -> Node | None:
    """The Node to use, or None if there is no official engine on this machine."""
    for folder in [packages] if packages else _candidates():
        if (folder / "@rocicorp" / "zero" / "package.json").exists():
            own = folder / "node" / "bin" / "node"
            program = own if own.exists() else shutil.which("node")
            return Node(Path(program), folder.resolve()) if program else None
    return None


def _candidates() -> list[Path]:
    tools = Path(os.environ.get("TEST_TOOLS") or REPOSITORY / ".tools")
    here = Path.cwd()
    return [tools / "npm" / "node_modules", *(folder / "node_modules" for folder in (here, *here.parents))]
