"""What was pickled before modules moved can be read after it."""

from __future__ import annotations

import pickle
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from adapters.sqlite.catalog.model import ColumnDef, TableDef
from adapters.sqlite.snapshot import TableRange
from changesource_sdk.pipeline.snapshot.former_modules import FORMER, FORMER_NAMES, unpickled
from changesource_sdk.pipeline.snapshot.resume import SnapshotPlan

EARLIER = Path(__file__).with_name("unfinished-of-an-earlier-version.pickle")
"""A plan that an earlier version pickled, with the partitions and callbacks of every adapter that can resume."""


def test_a_plan_of_an_earlier_version_is_read() -> None:
    source, plan = unpickled(EARLIER.read_bytes())
    assert source == "source"
    assert isinstance(plan, SnapshotPlan)
    assert [type(partition).__name__ for partition in plan.snapshot.partitions] == [
        "TableRange",
        "FoldedPartition",
        "DeltaPartition",
        "CopyPartition",
        "RowsPartition",
        "MappedPartition",
    ]
    sqlite, kafka, *_, mapped = plan.snapshot.partitions
    assert (sqlite.table, kafka.table, mapped.table) == ("issue", "issue", "ticket")
    assert callable(plan.snapshot.can_resume)
    assert callable(plan.snapshot.close)


def test_a_class_is_found_under_the_former_name_of_its_module() -> None:
    content = pickle.dumps(SnapshotPlan, protocol=0)
    former = content.replace(b"changesource_sdk.pipeline.snapshot.resume", b"changesource_sdk.pipeline.unfinished")
    assert former != content
    assert unpickled(former) is SnapshotPlan


def test_partitions_of_a_sqlite_snapshot_are_read_after_their_catalog_moved() -> None:
    table = TableDef(1, "t", (ColumnDef(1, "id", "int8", True),), ("id",), ("_rowid_",))
    partition = TableRange("copy.db", table, None, (5,))
    content = pickle.dumps(partition, protocol=0)
    former = content.replace(b"adapters.sqlite.catalog.model", b"adapters.sqlite.catalog")
    assert former != content
    assert unpickled(former) == partition


def test_what_this_version_pickles_is_read_as_it_is() -> None:
    assert unpickled(pickle.dumps((SnapshotPlan, {"a": 1}))) == (SnapshotPlan, {"a": 1})


@pytest.mark.parametrize(("former", "present"), FORMER_NAMES.items())
def test_a_class_or_function_is_found_under_its_former_name(former: tuple[str, str], present: tuple[str, str]) -> None:
    content = b"c" + former[0].encode() + b"\n" + former[1].encode() + b"\n."
    assert unpickled(content) is getattr(import_module(present[0]), present[1])


@pytest.mark.parametrize("present", FORMER.values())
def test_every_present_name_is_a_module(present: str) -> None:
    assert find_spec(present) is not None
