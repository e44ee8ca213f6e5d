"""Every rule of the suite has a planted bug that it catches, and that the other rules do not.

Which rules see a bug is found by running all of them, which takes some seconds for each bug: the marker `faults`. The
bugs in the adapter of `workshop` are not shown to `killed` and `full-disk`, which need a store that outlives a process:
they are not applicable there, as the test checks.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from adapters.sqlite import SqliteAdapter
from changesource_sdk.pipeline import tail
from changesource_sdk.testing.conformance import CASES, Case, Harness, Verdict, run_case
from tests.changesource_sdk.testing.conformance import planted_adapters as planted
from tests.changesource_sdk.testing.conformance import planted_for_processes as processes
from tests.changesource_sdk.testing.conformance import planted_for_rules as narrow
from tests.changesource_sdk.testing.conformance.workshop import RightAdapter, harness_of

BY_NAME = {case.name: case for case in CASES}
PATIENCE_S = 1.5
PROCESS_PATIENCE_S = 5.0
OTHERS_PATIENCE_S = 30.0
"""For the rules that must not catch a bug: a busy machine is no bug."""
AT_ONCE = 4

BUGS: dict[str, type[RightAdapter | SqliteAdapter]] = {
    "tables": planted.NoKey,
    "picklable": planted.HoldsALock,
    "partitions": planted.ReadsOnce,
    "stops": narrow.BlocksWithoutClose,
    "serving": narrow.SyncsOldClients,
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
    "duplicates": narrow.ReadsPageAfterPage,
    "dropped-connection": narrow.SavesWhileItYields,
    "lost-log": narrow.ExportsOnce,
    "partial-update": narrow.InsertsParts,
    "rewritten-rows": narrow.TiresOfARow,
    "deletes": narrow.KeepsTheLastRow,
    "key-changes": planted.LosesKeyChange,
    "atomic": narrow.TearsMixedTransactions,
    "empty-transactions": planted.ExpectsAChange,
    "huge-transaction": planted.ReadsAThousand,
    "killed": processes.LeavesItsLock,
    "full-disk": processes.WaitsForRoom,
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

NEEDING_A_PROCESS = {"killed", "full-disk"}
ALONE = {"stops"}
"""They examine the threads of this process, so no other case may run meanwhile."""


def harness(bug: type[RightAdapter | SqliteAdapter], *, patience: float | None = None) -> Harness:
    """A harness for a bug; without `patience`, with little of it."""
    if issubclass(bug, SqliteAdapter | processes.FileAdapter):
        return processes.harness_of(bug, patience or PROCESS_PATIENCE_S)
    return harness_of(bug, patience or PATIENCE_S)


@pytest.fixture(autouse=True)
def _end_blocked_readers_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "JOIN_S", 0.3)


def test_every_rule_has_a_bug_of_its_own() -> None:
    assert BUGS.keys() == BY_NAME.keys()
    assert len(set(BUGS.values())) == len(BUGS)


def test_every_narrow_bug_is_used() -> None:
    bases = {
        RightAdapter,
        SqliteAdapter,
        processes.FileAdapter,
        planted.EachChange,
        narrow.EachTransaction,
        narrow.LosesNewest,
    }
    planted_here = [*vars(narrow).values(), *vars(processes).values()]
    bugs = {cls for cls in planted_here if isinstance(cls, type) and issubclass(cls, RightAdapter | SqliteAdapter)}
    assert bugs - bases <= set(BUGS.values())


@pytest.mark.parametrize(("rule", "bug"), BUGS.items(), ids=BUGS)
def test_a_rule_catches_its_bug(rule: str, bug: type[RightAdapter | SqliteAdapter], tmp_path: Path) -> None:
    verdict = run_case(harness(bug), BY_NAME[rule], tmp_path)
    assert verdict.outcome == "broken", f"{rule} does not notice {bug.__name__}"


@pytest.mark.faults
@pytest.mark.parametrize("rule", BUGS)
def test_no_other_rule_catches_it(rule: str, tmp_path: Path) -> None:
    def run(case: Case) -> Verdict:
        own = tmp_path / case.name
        own.mkdir()
        return run_case(harness(BUGS[rule], patience=OTHERS_PATIENCE_S), case, own)

    others = [case for case in CASES if case.name != rule]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        verdicts = list(pool.map(run, [case for case in others if case.name not in ALONE]))
    verdicts += map(run, [case for case in others if case.name in ALONE])
    assert [str(verdict) for verdict in verdicts if verdict.outcome == "broken"] == []
    if rule not in NEEDING_A_PROCESS:
        inapplicable = {verdict.case for verdict in verdicts if "durable" in verdict.message}
        assert inapplicable == NEEDING_A_PROCESS
