"""An example as its page says it is run."""

from __future__ import annotations

import sys

from tests.docs.fences import ROOT, ran
from tests.support.child_process import ChildProcess

SECONDS = 240.0


def shown_by(command: str, **env: str) -> list[str]:
    """What an example prints once its flow runs; it must end by itself, and well."""
    python, *words = command.split()
    assert python == "python"
    with ChildProcess([sys.executable, "-u", *words], cwd=ROOT, env=env) as example:
        assert example.wait(SECONDS) == 0, example.tail(200)
        assert example.tree() == []
        ran(command)
        return example.lines[example.wait_for_line("cache: running on port ") :]
