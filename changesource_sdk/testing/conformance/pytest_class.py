"""One line in a test file: `TestNotes = conformance(NotesHarness)` is a test class with one test per case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from changesource_sdk.testing.conformance.case import Case
from changesource_sdk.testing.conformance.harness import Harness
from changesource_sdk.testing.conformance.suite import CASES, SEED, MakeHarness, run_case
from changesource_sdk.testing.plugin import PROPERTY


def conformance(make: MakeHarness, cases: Sequence[Case] = CASES, *, seed: int = SEED) -> type:
    """A class for pytest to collect. A case that is not applicable is a skip that gives the declared reason."""

    class Conformance:
        """The suite on one adapter. A subclass may override `harness`, to make it from other fixtures."""

        @pytest.fixture
        def harness(self) -> Harness:
            """A new harness for each case."""
            return make()

        @pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])
        def test_keeps_the_contract(
            self, case: Case, harness: Harness, tmp_path: Path, record_property: Callable[[str, object], None]
        ) -> None:
            """The rule of one case."""
            verdict = run_case(harness, case, tmp_path, seed=seed)
            record_property(PROPERTY, f"{type(harness).__name__}: {verdict.outcome}")
            if verdict.outcome == "broken":
                pytest.fail(str(verdict), pytrace=False)
            if verdict.outcome == "not applicable":
                pytest.skip(f"not applicable: {verdict.message}")

    return Conformance
