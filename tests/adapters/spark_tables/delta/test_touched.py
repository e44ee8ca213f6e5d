"""Keys that a feed touched: written per version, asked for up to one, put together when there are many."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from adapters.spark_tables.delta import touched
from adapters.spark_tables.delta.touched import TouchedKeys
from adapters.spark_tables.difference.files import DELETE, UPDATE

BASE = 7


def feed(*rows: tuple[int, str]) -> list[pa.RecordBatch]:
    ids, kinds = [row[0] for row in rows], [row[1] for row in rows]
    return [pa.RecordBatch.from_arrays([pa.array(ids, pa.int64()), pa.array(kinds)], ["id", "_change_type"])]


@pytest.fixture
def keys(tmp_path: Path) -> TouchedKeys:
    return TouchedKeys(tmp_path.as_uri(), ("id",))


def known(keys: TouchedKeys, version: int) -> tuple[dict[int, int], int] | None:
    found = keys.up_to(BASE, version)
    if found is None:
        return None
    table, net = found
    return dict(zip(table["k0"].to_pylist(), table["operation"].to_pylist(), strict=True)), net


def test_the_last_word_about_a_key_counts(keys: TouchedKeys) -> None:
    keys.add(BASE, 1, feed((1, "insert"), (2, "delete"), (3, "update_postimage"), (3, "update_preimage")))
    keys.add(BASE, 2, feed((1, "delete"), (2, "insert"), (4, "insert")))
    assert known(keys, 1) == ({1: UPDATE, 2: DELETE, 3: UPDATE}, 0)
    assert known(keys, 2) == ({1: DELETE, 2: UPDATE, 3: UPDATE, 4: UPDATE}, 1)


def test_a_version_read_twice_counts_once(keys: TouchedKeys) -> None:
    for _ in range(2):
        keys.add(BASE, 1, feed((1, "insert")))
    assert known(keys, 1) == ({1: UPDATE}, 1)


def test_nothing_touched_is_nothing(keys: TouchedKeys) -> None:
    keys.add(BASE, 5, feed((1, "insert")))
    assert known(keys, 4) is None
    assert keys.up_to(BASE + 1, 9) is None


def test_many_files_become_one_that_says_the_same(
    keys: TouchedKeys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(touched, "MOST_FILES", 3)
    for version in range(1, 7):
        keys.add(BASE, version, feed((version % 3, "insert"), (version, "delete")))
    before = known(keys, 5), known(keys, 6)
    keys.merge(BASE, 5)
    assert [path.name for path in sorted(tmp_path.rglob("*.parquet"))] == ["5.parquet", "6.parquet"]
    assert (known(keys, 5), known(keys, 6)) == before


def test_former_bases_are_forgotten(keys: TouchedKeys, tmp_path: Path) -> None:
    keys.add(BASE, 1, feed((1, "insert")))
    keys.add(BASE + 1, 2, feed((1, "insert")))
    keys.forget_before(BASE + 1)
    assert known(keys, 9) is None
    assert keys.up_to(BASE + 1, 9) is not None
