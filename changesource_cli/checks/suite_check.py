"""The conformance suite as part of `changesource check`: its verdicts in the form that all checks have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from changesource_sdk.checking.verdict import Finding, Outcome, Verdict
from changesource_sdk.testing.conformance import case as conformance
from changesource_sdk.testing.conformance.harness import lacking
from changesource_sdk.testing.conformance.suite import CASES, MakeHarness, run_suite

OUTCOMES: dict[conformance.Outcome, Outcome] = {"kept": "ok", "broken": "broken", "not applicable": "not seen"}


async def check_suite(make: MakeHarness, tell: Callable[[str], None] = lambda text: None) -> AsyncIterator[Verdict]:
    """The verdicts of the suite, as they come. For a store that cannot be written, the cases that only read."""
    missing = lacking(make())
    is_read_only = "writes" in missing
    cases = [case for case in CASES if not is_read_only or missing.isdisjoint(case.needs)]
    verdicts = run_suite(make, cases)
    tell("conformance suite")
    while (found := await asyncio.to_thread(next, verdicts, None)) is not None:
        yield _verdict(found)
    if is_read_only:
        left = f"{len(CASES) - len(cases)} cases write to the store: check a harness (module:Harness) to run them"
        yield Verdict("writing cases", "not seen", left)


def _verdict(found: conformance.Verdict) -> Verdict:
    if found.outcome != "broken":
        return Verdict(found.case, OUTCOMES[found.outcome], found.message or found.rule)
    return Verdict(found.case, "broken", found.rule, (Finding(found.case, found.message, own_page=found.doc),))
