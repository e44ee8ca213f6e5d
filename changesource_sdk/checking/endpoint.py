"""Checking an endpoint: the cases one after the other, each with its verdict, within a time limit.

    async for verdict in check_endpoint(CheckSettings("ws://127.0.0.1:4810/changes/v0/stream")):
        print(verdict.case, verdict.outcome, verdict.message)

The check connects as a consumer with its own app id, so that its acks cannot make an endpoint forget what another
consumer still needs. `EndpointError` is raised only if the first connection fails.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from changesource_sdk.checking.endpoint_cases import CASES, EndpointCase
from changesource_sdk.checking.endpoint_run import CaseStopped, CheckSettings, EndpointRun, NotSeen
from changesource_sdk.checking.probe_stream import FrameLog
from changesource_sdk.checking.verdict import CheckVerdict

DISTURBS = "left out: the endpoint may start over for all its consumers (--resets asks for it)"


async def check_endpoint(
    settings: CheckSettings,
    *,
    cases: Sequence[EndpointCase] = CASES,
    keep: Callable[[bytes], None] = lambda line: None,
    report_progress: Callable[[str], None] = lambda text: None,
) -> AsyncIterator[CheckVerdict]:
    """Yield the verdict of each case; `keep` receives the lines of the transcript, `report_progress` short texts."""
    run = EndpointRun(settings, FrameLog(keep))
    for case in cases:
        run.report_progress = _with_case_name(report_progress, case)
        run.report_progress("")
        yield await _judge(run, case)


def _with_case_name(report_progress: Callable[[str], None], case: EndpointCase) -> Callable[[str], None]:
    return lambda text: report_progress(f"{case.name} {text}".strip())


async def _judge(run: EndpointRun, case: EndpointCase) -> CheckVerdict:
    if case.disturbs and not run.settings.resets:
        return CheckVerdict(case.name, "not seen", DISTURBS)
    if not run.left:
        return CheckVerdict(case.name, "not seen", f"the {run.settings.seconds:g} s were over: give --seconds more")
    run.findings, message = {}, ""
    try:
        message = await case.run(run)
    except NotSeen as reason:
        if not run.findings:
            return CheckVerdict(case.name, "not seen", str(reason))
    except CaseStopped:
        pass
    if findings := tuple(each for same in run.findings.values() for each in same):
        return CheckVerdict(case.name, "broken", case.proves, findings)
    return CheckVerdict(case.name, "ok", message)
