"""A bug planted in a process that is killed: what was written while it was dead is lost."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

from adapters.sqlite import SqliteAdapter
from changesource_sdk.adapter import Position, Transaction
from changesource_sdk.testing.conformance import CASES, run_case
from tests.conformance.sqlite_harness import SqliteHarness

(KILLED,) = [case for case in CASES if case.name == "killed"]


class StartsWithWhatIsNew(SqliteAdapter):
    """Ignores the position it is given: it begins with what comes after its start."""

    def changes(self, after: Position) -> Generator[Transaction, None, None]:
        now = self.snapshot()
        assert now.close is not None
        now.close()
        yield from super().changes(now.position)


class StartsWithWhatIsNewHarness(SqliteHarness):
    adapter = StartsWithWhatIsNew
    patience = 5.0


def test_an_adapter_that_starts_with_what_is_new_loses_what_was_written_while_it_was_dead(tmp_path: Path) -> None:
    verdict = run_case(StartsWithWhatIsNewHarness(), KILLED, tmp_path)
    assert verdict.outcome == "broken"
    assert "after SIGKILL: changes(after) must continue from `after`" in verdict.message
