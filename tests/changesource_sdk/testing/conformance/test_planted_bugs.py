"""Every planted bug is caught, by a case whose message says what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from changesource_sdk.testing.conformance import CASES, Case, run_case
from tests.changesource_sdk.testing.conformance import planted_adapters as planted
from tests.changesource_sdk.testing.conformance.workshop import RightAdapter, harness_of

BY_NAME = {case.name: case for case in CASES}

CAUGHT_BY_WHAT_CAME = [
    (planted.LosesAtTheSeam, "seam", "a change was lost"),
    (planted.StaleRows, "seam-under-load", "came twice"),
    (planted.Doubles, "order", "a change came twice"),
    (planted.Tears, "atomic", "a transaction was torn"),
    (planted.TuplePositions, "positions", "lists, not tuples"),
    (planted.ClockPositions, "positions", "make positions of JSON values only"),
    (planted.NumberInText, "values-in-changes", "where a text is needed"),
    (planted.TextForTime, "values-in-changes", "where a point in time is needed"),
    (planted.TextForJson, "values-in-changes", "wrap the text in JsonText"),
    (planted.InsertForUpdate, "partial-update", "an Insert that leaves a column out sets it to null"),
    (planted.LeavesOutNulls, "values-in-changes", "give the null"),
    (planted.LosesKeyChange, "key-changes", "give the Update its old_key"),
    (planted.MisspellsColumn, "order", "did you mean 'title'?"),
    (planted.ForgetsCreateTable, "create-table", "send CreateTable before its rows"),
    (planted.SchemaAfterRows, "add-column", "send AddColumn before rows that have it"),
    (planted.IgnoresAcks, "forget", "was ignored"),
    (planted.InconsistentSnapshot, "seam", "the snapshot shows no state that the store was ever in"),
    (planted.ReadsOnce, "partitions", "gives other rows when it is read again"),
    (planted.Reorders, "order", "another order"),
    (planted.BlocksForEver, "stops", "give the adapter a close()"),
    (planted.HoldsALock, "picklable", "cannot be pickled"),
    (planted.NoKey, "tables", "has no key"),
    (planted.OddWatermark, "order", "is no watermark"),
    (planted.FallingWatermarks, "positions", "watermarks that an adapter gives must increase"),
    (planted.SecondsForMilliseconds, "commit-times", "give milliseconds since 1970"),
    (planted.ChokesOnBadValues, "bad-integers", "Pass the value on and let the SDK refuse it"),
    (planted.ChokesOnBadValues, "bad-texts", "Pass the value on and let the SDK refuse it"),
    (planted.ChokesOnBadValues, "bad-numbers", "Pass the value on and let the SDK refuse it"),
    (planted.NeedsARow, "empty-store", "ValueError"),
    (planted.ExpectsAChange, "empty-transactions", "StopIteration"),
    (planted.ReadsAThousand, "huge-transaction", "a transaction was torn"),
    (planted.SnapshotsOnce, "lost-log", "FileExistsError: the export exists"),
    (planted.LosesDroppedColumns, "drop-column", "yield DropColumn"),
    (planted.TextForJsonInSnapshots, "values-in-snapshot", "wrap the text in JsonText"),
]
CAUGHT_BY_WHAT_DID_NOT_COME = [
    (planted.IgnoresNewTables, "create-table", "Yield CreateTable, then its rows"),
    (planted.LosesDeletes, "deletes", "yield a Delete"),
    (planted.ReusesPositions, "positions", "a position belongs to one transaction"),
    (planted.CountsDown, "positions", "positions that are integers must increase"),
    (planted.LosesUpdates, "rewritten-rows", "never came"),
    (planted.LosesUpdates, "serving", "a cache does not end with what the store holds"),
    (planted.LosesAtTheSeam, "resume", "in a new adapter, which is to continue after"),
    (planted.ReusesPositions, "duplicates", "never came"),
    (planted.ForgetsTooMuch, "acknowledge", "what follows it is gone"),
    (planted.ForgetsWhenRead, "read-again", "not yet acknowledged, and must stay"),
    (planted.OwnCursor, "restart", "must continue from `after`"),
    (planted.SavesTooEarly, "dropped-connection", "ahead of what the log holds"),
    (planted.HoldsBack, "prompt", "held back until the next one"),
    (planted.SlowSnapshot, "partitions", "snapshot() did not return within"),
    (planted.SkipsBadValues, "bad-integers", "left out silently"),
    (planted.Deaf, "prompt", "never came"),
]
MATRIX = [*CAUGHT_BY_WHAT_CAME, *CAUGHT_BY_WHAT_DID_NOT_COME]
SHORT_PATIENCE = 2.5


@pytest.mark.parametrize(("bug", "case", "message"), MATRIX, ids=[f"{bug.__name__}-{case}" for bug, case, _ in MATRIX])
def test_a_planted_bug_is_caught_and_named(bug: type[RightAdapter], case: str, message: str, tmp_path: Path) -> None:
    waits = (bug, case, message) in CAUGHT_BY_WHAT_DID_NOT_COME
    harness = harness_of(bug, SHORT_PATIENCE) if waits else harness_of(bug)
    verdict = run_case(harness, BY_NAME[case], tmp_path)
    assert verdict.outcome == "broken", f"{bug.__name__} went unnoticed"
    assert message in verdict.message
    assert "Traceback" not in verdict.message


def test_every_planted_bug_is_in_the_matrix() -> None:
    bases = {RightAdapter, planted.EachChange}
    found = {cls for cls in vars(planted).values() if isinstance(cls, type) and issubclass(cls, RightAdapter)}
    assert found - bases == {bug for bug, _, _ in MATRIX}


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_adapter_without_bugs_passes(case: Case, tmp_path: Path) -> None:
    verdict = run_case(harness_of(RightAdapter), case, tmp_path)
    assert verdict.ok, str(verdict)
