"""Running the suite without pytest, on harnesses that are right, wrong, and only readable."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from adapters.sqlite import SqliteAdapter
from changesource_sdk.adapter import AddColumn, Change
from changesource_sdk.testing.conformance import CASES, ReadingHarness, run_case, run_suite
from tests.changesource_sdk.testing.conformance.workshop import WorkshopHarness
from tests.conformance.sqlite_harness import SqliteHarness

BY_NAME = {case.name: case for case in CASES}


def test_case_names_are_unique_and_every_verdict_points_to_the_docs() -> None:
    assert len(BY_NAME) == len(CASES)
    assert all(case.doc.endswith(f"#{case.name}") for case in CASES)


def test_a_store_that_is_only_read_is_put_through_the_cases_that_read(tmp_path: Path) -> None:
    there = SqliteHarness()
    there.create(tmp_path)
    verdicts = list(run_suite(lambda: ReadingHarness(SqliteAdapter, there.settings())))
    assert [str(verdict) for verdict in verdicts if not verdict.ok] == []
    kept = [verdict.case for verdict in verdicts if verdict.outcome == "kept"]
    assert kept == ["tables", "picklable", "partitions", "stops", "serving"]
    others = {verdict.message for verdict in verdicts if verdict.case not in kept}
    assert all(message.startswith("declared: lacks ") for message in others)


def test_a_verdict_can_be_printed_and_sent(tmp_path: Path) -> None:
    verdict = run_case(WorkshopHarness(), BY_NAME["tables"], tmp_path)
    assert verdict.as_json()["outcome"] == "kept"
    assert verdict.as_json()["doc"] == "docs/how-to/test-an-adapter.md#tables"
    assert str(verdict) == "tables: kept"


class HalfAHarness(WorkshopHarness):
    """Its author forgot to declare that it cannot change the schema."""

    def commit(self, changes: Sequence[Change]) -> None:
        if any(isinstance(change, AddColumn) for change in changes):
            raise NotImplementedError("no columns today")
        super().commit(changes)


def test_what_a_harness_cannot_write_is_told_as_its_own_lack(tmp_path: Path) -> None:
    verdict = run_case(HalfAHarness(), BY_NAME["add-column"], tmp_path)
    assert verdict.outcome == "broken"
    assert "HalfAHarness.commit() failed on AddColumn(item): NotImplementedError: no columns today" in verdict.message
    assert "declare in `lacks`" in verdict.message


class NoStoreHarness(WorkshopHarness):
    def create(self, folder: Path) -> None:
        raise ConnectionRefusedError("nobody listens")


def test_a_store_that_cannot_be_made_is_told_as_such(tmp_path: Path) -> None:
    verdict = run_case(NoStoreHarness(), BY_NAME["tables"], tmp_path)
    assert verdict.message == "NoStoreHarness.create() failed: ConnectionRefusedError: nobody listens"


class MisspeltHarness(WorkshopHarness):
    lacks = ("transaction",)


@pytest.mark.parametrize("case", ["tables", "atomic"])
def test_a_capability_nobody_knows_is_told_with_the_nearest(case: str, tmp_path: Path) -> None:
    verdict = run_case(MisspeltHarness(), BY_NAME[case], tmp_path)
    assert verdict.outcome == "broken"
    assert "MisspeltHarness.lacks names 'transaction'" in verdict.message
    assert "did you mean 'transactions'?" in verdict.message
