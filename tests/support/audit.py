"""`make audit`: what the package is made of (an SBOM), and which of it has known vulnerabilities.

Both tools live in an environment of their own, so that they never change the pinned one. Contract: exit code 1 if an
advisory names a pinned version; 0 otherwise. Where the advisory service cannot be reached that is said, in so many
words, and is no failure: a developer without network is not stopped, and nobody takes silence for a clean bill.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

from tests.support.tools import REPOSITORY, TOOLS

PINS = ("pip-audit==2.10.1", "cyclonedx-bom==7.5.0")
SBOM = REPOSITORY / "dist" / "sbom.json"
CONSTRAINTS = REPOSITORY / "constraints.txt"


def environment() -> Path:
    """The folder of the tools' programs, made when first used."""
    folder = TOOLS / "audit"
    if not (folder / "bin" / "pip-audit").exists():
        print(f"tools: installing {' and '.join(PINS)} into {folder}", flush=True)
        venv.create(folder, with_pip=True)
        subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", *PINS], check=True)
    return folder / "bin"


def write_sbom(programs: Path) -> int:
    """Write what this environment consists of; the number of components."""
    SBOM.parent.mkdir(exist_ok=True)
    subprocess.run([programs / "cyclonedx-py", "environment", sys.executable, "-o", SBOM], check=True)
    return len(json.loads(SBOM.read_text())["components"])


def audited(programs: Path) -> list[dict[str, Any]]:
    """Every pinned package as the audit saw it: `vulns`, or `skip_reason` where nothing could be learnt of it."""
    command: list[str | Path] = [programs / "pip-audit", "-r", CONSTRAINTS, "--no-deps", "--disable-pip"]
    command += ["-f", "json", "--timeout", "10"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        return []
    return found


def verdict(packages: list[dict[str, Any]]) -> tuple[int, str]:
    """The exit code and a sentence."""
    vulnerable = [each for each in packages if each.get("vulns")]
    if vulnerable:
        lines = [
            f"  {each['name']} {each['version']}: {', '.join(v['id'] for v in each['vulns'])}" for each in vulnerable
        ]
        return 1, "\n".join(["known vulnerabilities in pinned packages:", *lines])
    known = [each for each in packages if "skip_reason" not in each]
    if not known:
        return 0, "NOT AUDITED: the advisory service could not be reached from here; run it where it answers"
    missing = len(packages) - len(known)
    unknown = f"; {missing} could not be looked up" if missing else ""
    return 0, f"no known vulnerabilities in {len(known)} pinned packages{unknown}"


if __name__ == "__main__":
    tools = environment()
    print(f"sbom: {write_sbom(tools)} components in {SBOM.relative_to(REPOSITORY)}", flush=True)
    code, said = verdict(audited(tools))
    print(f"audit: {said}")
    sys.exit(code)
