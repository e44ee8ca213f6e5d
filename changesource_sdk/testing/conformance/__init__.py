"""The conformance suite: proof that an adapter keeps its contract. Needs no pytest but for `conformance` itself."""

from typing import TYPE_CHECKING

from changesource_sdk.testing.conformance.case import Broken, Case, NotApplicable, Verdict
from changesource_sdk.testing.conformance.harness import CAPABILITIES, Harness, ReadingHarness
from changesource_sdk.testing.conformance.suite import CASES, run_case, run_suite

if TYPE_CHECKING:
    from changesource_sdk.testing.conformance.pytest_class import conformance

__all__ = [
    "CAPABILITIES",
    "CASES",
    "Broken",
    "Case",
    "Harness",
    "NotApplicable",
    "ReadingHarness",
    "Verdict",
    "conformance",
    "run_case",
    "run_suite",
]


def __getattr__(name: str) -> object:
    # The command line runs the suite where pytest may not be installed.
    if name == "conformance":
        from changesource_sdk.testing.conformance.pytest_class import conformance

        return conformance
    raise AttributeError(name)
