"""The conformance suite as part of `changesource check`, with its verdicts as those of the other checks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from changesource_sdk.checking.verdict import CheckVerdict, Finding, Outcome
from changesource_sdk.testing.conformance import case as conformance
from changesource_sdk.testing.conformance.harness import lacking
from changesource_sdk.testing.conformance.suite import CASES, MakeHarness, run_suite

OUTCOMES: dict[conformance.Outcome, Outcome] = {"kept": "ok", "broken": "broken", "not applicable": "not seen"}


async def check_suite(
    make: MakeHarness, report_progress: Callable[[str], None] = lambda text: None
) -> AsyncIterator[CheckVerdict]:
    """Run the suite in a thread and yield its verdicts. A read-only harness gets the cases that do not write."""
    missing = lacking(make())
    is_read_only = "writes" in missing
    cases = [case for case in CASES if not is_read_only or missing.keys().isdisjoint(case.needs)]
    verdicts = run_suite(make, cases)
    report_progress("conformance suite")
    while (verdict := await asyncio.to_thread(next, verdicts, None)) is not None:
        yield _converted(verdict)
    if is_read_only:
        left = f"{len(CASES) - len(cases)} cases write to the upstream: check a harness (module:Harness) to run them"
        yield CheckVerdict("writing cases", "not seen", left)


def _converted(verdict: conformance.Verdict) -> CheckVerdict:
    if verdict.outcome != "broken":
        return CheckVerdict(verdict.case, OUTCOMES[verdict.outcome], verdict.message or verdict.rule)
    finding = Finding(verdict.case, verdict.message, own_page=verdict.doc)
    return CheckVerdict(verdict.case, "broken", verdict.rule, (finding,))
