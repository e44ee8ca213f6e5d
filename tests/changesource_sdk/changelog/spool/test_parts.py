"""Where parts are put: whole and noted, once each, in a folder and in a spool that hosts share by URI."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.spool.parts import LocalPlace, PartPlace, RemotePlace
from changesource_sdk.changelog.spool.remote import RemoteSpool
from changesource_sdk.changelog.spool.snapshots import Manifest, PartInfo
from changesource_sdk.errors import SnapshotGone
from protocol.framing import frame


@pytest.fixture(params=["local", "remote"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> PartPlace:
    if request.param == "local":
        (tmp_path / "0a.partial").mkdir()
        return LocalPlace(tmp_path / "0a.partial")
    return RemotePlace(RemoteSpool((tmp_path / "remote").as_uri()), "0a")


def put(place: PartPlace, number: int, content: bytes = b"[1]") -> PartInfo:
    with place.scratch() as own:
        part = snapshots.write_frames(own, number, [frame(content)])
        place.put(own / part.file, part)
    assert not own.exists()
    return part


def test_what_was_put_is_finished_for_every_process(place: PartPlace) -> None:
    assert place.finished() == {}
    parts = [put(place, number) for number in (1, 2)]
    elsewhere: PartPlace = pickle.loads(pickle.dumps(place))
    assert elsewhere.finished() == {part.file: part for part in parts}


def test_a_part_put_again_replaces_the_former(place: PartPlace) -> None:
    put(place, 1, b"[first]")
    again = put(place, 1, b"[the second, which is longer]")
    assert place.finished() == {again.file: again}


def test_an_attempt_that_fails_leaves_nothing(place: PartPlace) -> None:
    with pytest.raises(RuntimeError), place.scratch() as own:
        snapshots.write_frames(own, 1, [frame(b"[1]")])
        raise RuntimeError
    place.tidy()
    assert place.finished() == {}
    assert not own.exists()


def test_notes_go_and_parts_stay(place: PartPlace, tmp_path: Path) -> None:
    put(place, 1)
    place.remove_notes()
    assert place.finished() == {}
    assert [path.name for path in tmp_path.glob("*/**/part-*")] == ["part-00001.frames"]


def test_a_snapshot_is_published_with_the_parts_that_are_there_already(tmp_path: Path) -> None:
    remote = RemoteSpool((tmp_path / "remote").as_uri())
    directory = snapshots.stage(tmp_path / "here", "0a")
    schema = snapshots.write_frames(directory, 0, [frame(b"[0]")])
    rows = put(RemotePlace(remote, "0a"), 1)
    final = snapshots.complete(directory, Manifest("0a", 3, "{}", 5.0, (schema, rows)))
    remote.publish(final)
    assert remote.holds("0a")
    brought = remote.fetch("0a", tmp_path / "there")
    assert list(snapshots.blocks(brought, remote.manifest("0a"))) == [frame(b"[0]"), frame(b"[1]")]


def test_a_snapshot_whose_parts_are_nowhere_is_not_published(tmp_path: Path) -> None:
    remote = RemoteSpool((tmp_path / "remote").as_uri())
    directory = snapshots.stage(tmp_path / "here", "0a")
    final = snapshots.complete(directory, Manifest("0a", 3, "{}", 5.0, (PartInfo("part-00001.frames", "t", 1, 9, 0),)))
    with pytest.raises(SnapshotGone, match="part-missing"):
        remote.publish(final)
    assert not remote.holds("0a")


def test_a_snapshot_under_way_is_not_swept(tmp_path: Path) -> None:
    remote = RemoteSpool((tmp_path / "remote").as_uri())
    for watermark in ("0a", "0b", "0c"):
        put(RemotePlace(remote, watermark), 1)
    remote.sweep(["0b"])
    assert remote.watermarks() == ["0b", "0c"]
