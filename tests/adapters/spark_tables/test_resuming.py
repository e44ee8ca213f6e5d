"""A first sync that was interrupted is gone on with by a later process, as long as the same rows can be read."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from adapters.spark_tables import SparkTablesAdapter
from changesource_sdk.adapter import Snapshot
from tests.support.workloads.delta_lake import Lake, people


def taken(tmp_path: Path, kind: str, location: Path) -> Snapshot:
    """A snapshot as a later process has it."""
    adapter = SparkTablesAdapter({"people": {kind: str(location), "key": "id"}}, str(tmp_path / "state"))
    snapshot = pickle.loads(pickle.dumps(adapter.snapshot()))
    assert isinstance(snapshot, Snapshot)
    return snapshot


def can_resume(snapshot: Snapshot) -> bool:
    assert snapshot.can_resume is not None
    return snapshot.can_resume()


def ids(snapshot: Snapshot) -> list[int]:
    return sorted(int(str(row["id"])) for part in snapshot.partitions for row in part.rows())


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "people", people((1, "Ada"), (2, "Bob")))


def test_a_version_of_a_delta_table_is_read_on_while_its_files_are_there(lake: Lake, tmp_path: Path) -> None:
    snapshot = taken(tmp_path, "delta", lake.path)
    lake.overwrite(people((3, "Cy")))
    assert can_resume(snapshot)
    assert ids(snapshot) == [1, 2]
    lake.vacuum()
    assert not can_resume(snapshot)


def _made_anew(lake: Lake) -> None:
    lake.drop()
    Lake(lake.path, people((1, "Ada"), (2, "Bob")))


@pytest.mark.parametrize("spoil", [_made_anew, Lake.drop])
def test_another_delta_table_in_its_place_is_read_anew(
    lake: Lake, tmp_path: Path, spoil: Callable[[Lake], None]
) -> None:
    snapshot = taken(tmp_path, "delta", lake.path)
    spoil(lake)
    assert not can_resume(snapshot)


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_the_copy_of_a_table_without_versions_is_read_on_until_it_is_let_go(tmp_path: Path) -> None:
    folder = tmp_path / "people"
    folder.mkdir()
    pq.write_table(people((1, "Ada"), (2, "Bob")), folder / "one.parquet")
    snapshot = taken(tmp_path, "parquet", folder)
    shutil.rmtree(folder)
    assert can_resume(snapshot)
    assert ids(snapshot) == [1, 2]
    assert snapshot.close is not None
    snapshot.close()
    assert not can_resume(snapshot)


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_without_what_was_remembered_of_a_delta_table_it_is_read_anew(lake: Lake, tmp_path: Path) -> None:
    snapshot = taken(tmp_path, "delta", lake.path)
    assert can_resume(snapshot)
    shutil.rmtree(tmp_path / "state")
    assert not can_resume(snapshot)
