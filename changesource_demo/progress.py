"""How the demo reports its steps to the command that runs it."""

from __future__ import annotations

from typing import Protocol


class Report(Protocol):
    """Prints one step: `text` for people, or `event` with its fields for programs."""

    def __call__(self, event: str, text: str, **fields: object) -> None: ...


def report_runner(report: Report, runner: str) -> None:
    lane = "Spark, which takes some seconds to start" if runner == "spark" else "the inline runner"
    report("pipeline", f"pipeline:  {lane}", runner=runner)
