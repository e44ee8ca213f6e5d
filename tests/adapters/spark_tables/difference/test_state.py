"""What is remembered of a table outlives kills: versions are whole, and go only when a later one is durable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from adapters.spark_tables.difference.state import StateFolder, StateVersion


def version(number: int, base: str, *deltas: str) -> StateVersion:
    return StateVersion(number, base, deltas, 10, 0, "{}", "seen", 0, 0.0)


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    for name in ("base-1", "delta-2", "delta-3", "rows-1", "delta-4"):
        (tmp_path / "table" / name).mkdir(parents=True)
    made = StateFolder(str(tmp_path / "table"), clock=lambda: 0.000005)
    made.save(version(1, "base-1"))
    made.save(version(2, "base-1", "delta-2"))
    made.save(version(3, "base-1", "delta-2", "delta-3"))
    return made


def names(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "table").iterdir()}


def test_a_version_comes_back_as_it_was_saved(folder: StateFolder) -> None:
    assert folder.load(3) == version(3, "base-1", "delta-2", "delta-3")


def test_a_version_that_was_never_saved_is_none(folder: StateFolder) -> None:
    assert folder.load(7) is None


def test_a_version_with_a_missing_folder_is_none(folder: StateFolder) -> None:
    folder.remove("delta-2")
    assert folder.load(3) is None
    assert folder.load(1) == version(1, "base-1")


def test_saving_again_replaces(folder: StateFolder) -> None:
    folder.save(replace(version(3, "base-1"), fingerprint="new"))
    assert folder.load(3) == replace(version(3, "base-1"), fingerprint="new")


def test_a_durable_version_takes_older_ones_with_it_and_keeps_what_it_names(
    folder: StateFolder, tmp_path: Path
) -> None:
    folder.forget_before(2)
    assert folder.load(1) is None
    assert folder.load(2) is not None
    assert folder.load(3) is not None
    assert "rows-1" not in names(tmp_path)
    assert {"base-1", "delta-2", "delta-3"} <= names(tmp_path)


def test_a_folder_in_the_making_survives_an_acknowledgement(folder: StateFolder, tmp_path: Path) -> None:
    folder.forget_before(3)
    assert "delta-4" in names(tmp_path)


def test_going_on_sweeps_what_never_became_durable(folder: StateFolder, tmp_path: Path) -> None:
    folder.keep_only(2)
    assert names(tmp_path) == {"version-2.json", "base-1", "delta-2"}


def test_numbers_grow_with_the_clock_and_above_all_that_is_there(folder: StateFolder, tmp_path: Path) -> None:
    assert folder.next_number() == 5
    (tmp_path / "table" / "delta-900").mkdir()
    assert folder.next_number() == 901
    assert StateFolder(str(tmp_path / "lost"), clock=lambda: 2.0).next_number() == 2_000_000


def test_a_half_written_version_is_not_taken_for_one(folder: StateFolder, tmp_path: Path) -> None:
    (tmp_path / "table" / "version-5.json.staged").write_text("{")
    assert folder.load(5) is None
    folder.keep_only(3)
    assert folder.load(3) is not None
