"""`check_endpoint` on endpoints written without our SDK: the right one passes, each wrong one is told what is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from changesource_sdk.checking import endpoint_cases, endpoint_run
from changesource_sdk.checking.endpoint import check_endpoint
from changesource_sdk.checking.endpoint_cases import CASES
from changesource_sdk.checking.endpoint_run import CheckSettings
from changesource_sdk.checking.verdict import CheckVerdict
from protocol import rules
from tests.changesource_sdk.checking import plain_endpoint as wrong
from tests.changesource_sdk.checking.plain_endpoint import TRANSACTIONS, PlainEndpoint

IMPATIENT = {"TearsTransactions": 1.5, "BlocksItsLoop": 1.5, "NeverResets": 1.5}
"""How long to wait for an answer that never comes; every other check may take its time on a busy machine."""


@pytest.fixture(autouse=True)
def _watches_until_all_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a check need not watch for all its time, and that time can be long enough for a busy machine."""
    monkeypatch.setattr(endpoint_cases, "MOST_TRANSACTIONS", TRANSACTIONS)


def verdicts(endpoint: PlainEndpoint, names: Iterable[str] = (), **settings: float) -> list[CheckVerdict]:
    """What a quick check says; `names` limits it to these cases."""
    patience = IMPATIENT.get(type(endpoint).__name__, 30.0)
    given = {"watch": 1.0, "patience": patience, "resets": True, **settings}
    cases = [case for case in CASES if not names or case.name in names]

    async def run(url: str) -> list[CheckVerdict]:
        return [verdict async for verdict in check_endpoint(CheckSettings(url, **given), cases=cases)]  # type: ignore[arg-type]

    with endpoint.running() as url:
        return asyncio.run(run(url))


def test_a_right_endpoint_passes_every_case() -> None:
    found = verdicts(PlainEndpoint())
    assert [(verdict.case, verdict.findings) for verdict in found] == [(case.name, ()) for case in CASES]
    assert {verdict.outcome for verdict in found} == {"ok"}


def test_the_dialect_nobody_speaks_may_be_refused() -> None:
    found = {verdict.case: verdict for verdict in verdicts(wrong.ShippedDialectOnly())}
    assert found.pop("sketch dialect").outcome == "not seen"
    assert {verdict.outcome for verdict in found.values()} == {"ok"}


MISTAKES = [
    (wrong.LosesTheFirstChange, "seam", "seam", "item 4 is in the snapshot 12w.01 and not in the snapshot 12s.00 with"),
    (wrong.RepeatsTheLastChange, "resume", "watermark-order", "is not above"),
    (wrong.TearsTransactions, "live stream", "whole-transaction", "1 changes after begin, then nothing"),
    (wrong.ReusesWatermarks, "live stream", "watermark-order", "is not above"),
    (wrong.FallingWatermarks, "live stream", "watermark-order", "is not above"),
    (wrong.DecimalWatermarks, "initial sync", "watermark-form", "is not a LexiVersion"),
    (wrong.ForgetsMutations, "initial sync", "required-table", "_0.mutations is missing"),
    (wrong.OnlyForZero, "initial sync", "required-table", "changesource_check_0.clients is missing"),
    (wrong.NoPermissions, "initial sync", "permissions-row", "has 0 rows instead of one"),
    (wrong.NumbersForTexts, "live stream", "value-type", "name"),
    (wrong.InsertsForUpdates, "seam", "seam", "item 1 has another doc in the snapshot"),
    (wrong.LosesKeyChanges, "live stream", "old-key", ""),
    (wrong.ClosesOnRepeatedAcks, "live stream", "tolerates-acks", "ack went back"),
    (wrong.WrongJsonMode, "initial sync", "value-type", "doc"),
    (wrong.ForgetsItsLog, "resume", "resume-known", "was given out, and got reset-required"),
    (wrong.RowsBeforeColumns, "live stream", "unknown-column", "late"),
    (wrong.BlocksItsLoop, "live stream", "answers-pings", "no pong"),
    (wrong.NeverResets, "unknown replica", "unknown-reset", "a replica it never made, it sent nothing"),
    (wrong.SnapshotOfTwoMoments, "seam", "seam", "item 1 has another doc in the snapshot"),
    (wrong.OtherContentEachTime, "resume", "same-content", "other ones than"),
    (wrong.GoesOnAfterTheSnapshot, "initial sync", "after-initial", "is lost"),
    (wrong.ClosesWhenIdle, "live stream", "stays-open", "closed by the endpoint"),
    (wrong.OneConsumerOnly, "two consumers", "several-consumers", "the first of two was closed"),
    (wrong.BatchesMessages, "live stream", "one-message", "an array of"),
    (wrong.ServesOldWatermarks, "another initial sync", "initial-watermark", "is not above"),
    (wrong.BelievesClaims, "ahead of the log", "claim-harmless", "got reset-required"),
    (wrong.NoKeyIndex, "initial sync", "key-index", "item"),
]


@pytest.mark.parametrize(("endpoint", "case", "rule", "said"), MISTAKES, ids=[entry[0].__name__ for entry in MISTAKES])
def test_a_wrong_endpoint_is_told_what_is_wrong(
    endpoint: type[PlainEndpoint], case: str, rule: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if rule == "after-initial":
        monkeypatch.setattr(endpoint_run, "AFTERTHOUGHT_SECONDS", 1.0)
    found = {verdict.case: verdict for verdict in verdicts(endpoint(), {"initial sync", "live stream", case})}
    verdict = found[case]
    assert verdict.outcome == "broken"
    messages = [finding.message for finding in verdict.findings if finding.rule == rule]
    assert messages, verdict.findings
    assert said in messages[0]


def test_every_wrong_endpoint_is_in_the_table() -> None:
    made = {found for found in vars(wrong).values() if isinstance(found, type) and issubclass(found, PlainEndpoint)}
    assert made - {entry[0] for entry in MISTAKES} == {PlainEndpoint, wrong.ShippedDialectOnly}


def test_a_finding_names_the_line_of_the_transcript() -> None:
    lines: list[bytes] = []

    async def run(url: str) -> list[CheckVerdict]:
        return [verdict async for verdict in check_endpoint(CheckSettings(url), cases=CASES[:1], keep=lines.append)]

    with wrong.NoPermissions().running() as url:
        ((verdict,),) = [asyncio.run(run(url))]
    (finding,) = verdict.findings
    assert [(each.rule, each.frame) for each in rules.check(lines)] == [(finding.rule, finding.frame)]
    assert finding.text.startswith('["commit"')


def test_a_check_ends_in_time_and_blames_nobody_for_that() -> None:
    found = verdicts(PlainEndpoint(), seconds=2.0, watch=60.0)
    assert {verdict.outcome for verdict in found} <= {"ok", "not seen"}
    assert found[-1].outcome == "not seen"
    assert "--seconds" in found[-1].message
