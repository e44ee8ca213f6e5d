"""Every rule of the suite has a planted bug that it catches, and that the other rules do not.

Which rules see a bug is found by running all of them, which takes half a minute for each: the marker `faults`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from changesource_sdk.pipeline import tail
from changesource_sdk.testing.conformance import CASES, run_case
from tests.changesource_sdk.testing.conformance import planted_adapters as planted
from tests.changesource_sdk.testing.conformance import planted_for_rules as narrow
from tests.changesource_sdk.testing.conformance.workshop import RightAdapter, harness_of

BY_NAME = {case.name: case for case in CASES}
PATIENCE_S = 1.5

BUGS: dict[str, type[RightAdapter]] = {
    "tables": planted.NoKey,
    "picklable": planted.HoldsALock,
    "partitions": planted.ReadsOnce,
    "stops": narrow.BlocksWithoutClose,
    "serving": planted.LosesUpdates,
    "empty-store": planted.NeedsARow,
    "values-in-snapshot": narrow.CutsLongTextsInSnapshots,
    "values-in-changes": narrow.CutsLongTexts,
    "bad-integers": planted.SkipsBadValues,
    "bad-texts": narrow.SkipsBadTexts,
    "bad-numbers": narrow.SkipsBadNumbers,
    "seam": narrow.ReadsSmallTablesLate,
    "seam-under-load": planted.StaleRows,
    "order": narrow.TiresAfterForty,
    "prompt": narrow.JoinsInserts,
    "positions": narrow.TuplesAfterTheSnapshot,
    "commit-times": planted.SecondsForMilliseconds,
    "resume": narrow.SkipsWhenSevenBehind,
    "read-again": narrow.ThirdReadLacksARow,
    "restart": narrow.ResyncsNeedlessly,
    "duplicates": planted.ReusesPositions,
    "dropped-connection": narrow.SavesWhileItYields,
    "lost-log": narrow.ExportsOnce,
    "partial-update": narrow.InsertsParts,
    "rewritten-rows": narrow.TiresOfARow,
    "deletes": narrow.KeepsTheLastRow,
    "key-changes": planted.LosesKeyChange,
    "atomic": narrow.TearsMixedTransactions,
    "empty-transactions": planted.ExpectsAChange,
    "huge-transaction": planted.ReadsAThousand,
    "acknowledge": narrow.ForgetsMoreWhenBehind,
    "forget": planted.IgnoresAcks,
    "lost-position": narrow.IgnoresAGap,
    "lost-history": narrow.FailsWithoutHistory,
    "add-column": narrow.TakesNotesForComments,
    "drop-column": narrow.KeepsNotes,
    "create-table": narrow.IgnoresUnknownTables,
    "rename-column": narrow.LosesRenamedColumn,
    "change-type": narrow.LosesChangedType,
    "required-column": narrow.LosesDefault,
    "rename-table": narrow.LosesRenamedTable,
    "recreate-table": narrow.LosesDropTable,
    "truncate": narrow.LosesTruncate,
    "schema-while-stopped": narrow.TodaysColumnsAfterAStop,
    "schema-while-behind": narrow.TodaysColumnsWhenBehind,
    "schema-at-position": narrow.TodaysColumnsInBetween,
    "schema-in-transaction": narrow.SchemaFirst,
}

OF_THE_SDK = {"killed", "full-disk"}
"""They need a process: `test_killed` has a bug for the first; the second is about the SDK alone."""

NOT_ALONE = {"serving", "duplicates"}
"""They show that what other rules find right stays right through an endpoint, and when it is delivered twice. What an
adapter does wrong there, the rules about its changes see too.
"""


@pytest.fixture(autouse=True)
def _end_blocked_readers_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "JOIN_S", 0.3)


def test_every_rule_has_a_bug() -> None:
    assert BUGS.keys() == BY_NAME.keys() - OF_THE_SDK


def test_every_narrow_bug_is_used() -> None:
    bases = {RightAdapter, planted.EachChange, narrow.EachTransaction, narrow.LosesNewest}
    bugs = {cls for cls in vars(narrow).values() if isinstance(cls, type) and issubclass(cls, RightAdapter)}
    assert bugs - bases <= set(BUGS.values())


@pytest.mark.parametrize(("rule", "bug"), BUGS.items(), ids=BUGS)
def test_a_rule_catches_its_bug(rule: str, bug: type[RightAdapter], tmp_path: Path) -> None:
    verdict = run_case(harness_of(bug, PATIENCE_S), BY_NAME[rule], tmp_path)
    assert verdict.outcome == "broken", f"{rule} does not notice {bug.__name__}"


@pytest.mark.faults
@pytest.mark.parametrize("rule", [rule for rule in BUGS if rule not in NOT_ALONE])
def test_no_other_rule_catches_it(rule: str, tmp_path: Path) -> None:
    seen_by = set()
    for case in CASES:
        own = tmp_path / case.name
        own.mkdir()
        if run_case(harness_of(BUGS[rule], PATIENCE_S), case, own).outcome == "broken":
            seen_by.add(case.name)
    assert seen_by == {rule}
