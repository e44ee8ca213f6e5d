"""Where parts are put: whole and noted, once each, in a folder and in a spool that hosts share by URI."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.spool.files import SnapshotFiles
from changesource_sdk.changelog.spool.parts import PartStore
from changesource_sdk.changelog.spool.remote import RemoteSpool
from changesource_sdk.changelog.spool.snapshots import Manifest, PartInfo
from changesource_sdk.errors import SnapshotGone
from protocol.framing import frame


@pytest.fixture(params=["local", "remote"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> PartStore:
    if request.param == "local":
        (tmp_path / "0a.partial").mkdir()
        return PartStore.local(tmp_path / "0a.partial")
    return PartStore(RemoteSpool((tmp_path / "remote").as_uri()), "0a")


def put(store: PartStore, number: int, content: bytes = b"[1]") -> PartInfo:
    with store.scratch() as own:
        part = snapshots.write_frames(own, number, [frame(content)])
        store.put(own / part.file, part)
    assert not own.exists()
    return part


def test_what_was_put_is_finished_for_every_process(store: PartStore) -> None:
    assert store.finished() == {}
    parts = [put(store, number) for number in (1, 2)]
    elsewhere: PartStore = pickle.loads(pickle.dumps(store))
    assert elsewhere.finished() == {part.file: part for part in parts}


def test_a_part_put_again_replaces_the_former(store: PartStore) -> None:
    put(store, 1, b"[first]")
    again = put(store, 1, b"[the second, which is longer]")
    assert store.finished() == {again.file: again}


def test_an_attempt_that_fails_leaves_nothing(store: PartStore) -> None:
    with pytest.raises(RuntimeError), store.scratch() as own:
        snapshots.write_frames(own, 1, [frame(b"[1]")])
        raise RuntimeError
    store.tidy()
    assert store.finished() == {}
    assert not own.exists()


def test_notes_go_and_parts_stay(store: PartStore, tmp_path: Path) -> None:
    put(store, 1)
    store.remove_notes()
    assert store.finished() == {}
    assert [path.name for path in tmp_path.glob("*/**/part-*")] == ["part-00001.frames"]


def test_a_snapshot_is_published_with_the_parts_that_are_there_already(tmp_path: Path) -> None:
    remote = RemoteSpool((tmp_path / "remote").as_uri())
    here = SnapshotFiles(StateDirectory(tmp_path / "here").create(), remote)
    directory = snapshots.stage(here.layout.spool, "0a")
    schema = snapshots.write_frames(directory, 0, [frame(b"[0]")])
    rows = put(PartStore(remote, "0a"), 1)
    final = snapshots.complete(directory, Manifest("0a", 3, "{}", 5.0, (schema, rows)))
    here.publish(final)
    assert here.holds(final)
    there = SnapshotFiles(StateDirectory(tmp_path / "there").create(), remote)
    brought = there.fetch(there.layout.spool / "0a")
    assert list(snapshots.blocks(brought, there.manifest(brought))) == [frame(b"[0]"), frame(b"[1]")]


def test_a_snapshot_whose_parts_are_nowhere_is_not_published(tmp_path: Path) -> None:
    remote = RemoteSpool((tmp_path / "remote").as_uri())
    here = SnapshotFiles(StateDirectory(tmp_path / "here").create(), remote)
    directory = snapshots.stage(here.layout.spool, "0a")
    final = snapshots.complete(directory, Manifest("0a", 3, "{}", 5.0, (PartInfo("part-00001.frames", "t", 1, 9, 0),)))
    with pytest.raises(SnapshotGone, match="part-missing"):
        here.publish(final)
    assert not here.holds(final)


def test_a_snapshot_under_way_is_not_swept(tmp_path: Path) -> None:
    remote = RemoteSpool((tmp_path / "remote").as_uri())
    for watermark in ("0a", "0b", "0c"):
        put(PartStore(remote, watermark), 1)
    SnapshotFiles(StateDirectory(tmp_path), remote).sweep_shared(["0b"])
    assert sorted(remote.list()) == ["0b", "0c"]
