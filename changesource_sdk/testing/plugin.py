"""The pytest plugin that comes with the package: a fixture with seeded faults, and a summary of conformance verdicts.

It is loaded by pytest in every project that has the package installed, so it imports the suite only when it is used.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from changesource_sdk.testing.faults import Faults

SEED_VARIABLE = "CHANGESOURCE_SEED"
DEFAULT_SEED = "20260102"
PROPERTY = "conformance"


@pytest.fixture
def faults() -> Iterator[Faults]:
    """A plan of faults, seeded by CHANGESOURCE_SEED; the test fails if a fault that was planned never fired."""
    from changesource_sdk.testing.faults import Faults

    plan = Faults(int(os.environ.get(SEED_VARIABLE, DEFAULT_SEED)))
    print(f"{SEED_VARIABLE}={plan.seed}")
    yield plan
    plan.settle()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line per harness: how many rules it keeps, breaks, and which do not apply."""
    counts: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                counts.update(str(value) for name, value in report.user_properties if name == PROPERTY)
    for harness in sorted({key.partition(": ")[0] for key in counts}):
        outcomes = [f"{counts[f'{harness}: {o}']} {o}" for o in ("kept", "broken", "not applicable")]
        terminalreporter.write_line(f"conformance of {harness}: {', '.join(outcomes)}")
