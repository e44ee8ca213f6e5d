"""The file of client view records: all or nothing, and still there afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from reference_cache.view_syncer.cvr.file import CvrFile
from reference_cache.view_syncer.cvr.records import RecordedQuery, RecordStore, RowPatch


def test_a_transaction_that_fails_records_nothing_and_the_version_stays(tmp_path: Path) -> None:
    file = CvrFile(tmp_path / "cvr.db")
    store = RecordStore(file)
    query = RecordedQuery("k")
    with file.transaction("05"):
        store.enter(query)
    with pytest.raises(RuntimeError), file.transaction("06"):
        store.write(query, "06", [RowPatch(("issue", 1), "{}", (1, "06"))])
        raise RuntimeError
    assert file.data_version == "05"
    assert list(store.changed_after(query.id, "")) == []
    file.close()


def test_what_is_recorded_is_there_when_the_file_is_opened_again(tmp_path: Path) -> None:
    file = CvrFile(tmp_path / "cvr.db")
    file.start_over("01")
    with file.transaction("05"):
        store = RecordStore(file)
        query = RecordedQuery("k")
        store.enter(query)
        store.write(query, "05", [RowPatch(("issue", 1), '{"id":1}', (1, "03"))])
        store.settle(query, None)
    file.close()
    again = CvrFile(tmp_path / "cvr.db")
    found = RecordedQuery("k")
    RecordStore(again).load(found)
    assert dict(RecordStore(again).rows_of(found)) == {("issue", '{"id":1}'): "03"}
    assert (again.replica_version, again.data_version) == ("01", "05")
    assert (found.id, found.settled, found.last_patch) == (query.id, "05", "05")
    again.close()


def test_a_file_of_another_format_is_replaced_by_an_empty_one(tmp_path: Path) -> None:
    file = CvrFile(tmp_path / "cvr.db")
    file.start_over("01")
    file.connection.execute("UPDATE state SET format = 99")
    file.close()
    again = CvrFile(tmp_path / "cvr.db")
    assert (again.replica_version, again.data_version) == ("", "")
    again.close()
