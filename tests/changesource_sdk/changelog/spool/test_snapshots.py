"""Snapshots in the spool."""

from pathlib import Path

import pytest

from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.spool.snapshots import (
    Manifest,
    complete,
    read_manifest,
    stage,
    write_frames,
    write_part,
)
from changesource_sdk.errors import SnapshotGone
from changesource_sdk.pipeline.encoding.encode import TableEncoder
from changesource_sdk.schema import Column, Table
from protocol.framing import frame, unframe

ISSUE = Table("issue", [Column("id", int)])


def rows(count: int) -> list[dict[str, object]]:
    return [{"id": number} for number in range(count)]


def finished(spool: Path) -> tuple[Path, Manifest]:
    directory = stage(spool, "0a")
    schema = write_frames(directory, 0, [frame(b'["schema"]')])
    part = write_part(directory, 1, "issue", rows(1000), TableEncoder(ISSUE).inserts)
    manifest = Manifest("0a", {"at": 3}, "{}", 5.0, (schema, part))
    return complete(directory, manifest), manifest


def test_a_snapshot_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    directory, manifest = finished(tmp_path)
    assert directory == tmp_path / "0a"
    assert read_manifest(directory) == manifest
    payloads = [p for block in snapshots.blocks(directory, manifest) for p in unframe(block)]
    assert payloads[0] == b'["schema"]'
    assert len(payloads) == 1001
    assert payloads[-1].endswith(b'"new":{"id":999}}]')
    assert (manifest.rows, manifest.bytes) == (1000, sum(part.bytes for part in manifest.parts))


def test_an_unfinished_snapshot_has_no_watermark_s_name(tmp_path: Path) -> None:
    directory = stage(tmp_path, "0a")
    write_frames(directory, 0, [frame(b"[]")])
    assert [folder.name for folder in tmp_path.iterdir()] == ["0a.partial"]
    with pytest.raises(SnapshotGone):
        read_manifest(directory)


def test_staging_again_discards_the_first_attempt(tmp_path: Path) -> None:
    write_frames(stage(tmp_path, "0a"), 0, [frame(b"[]")])
    assert list(stage(tmp_path, "0a").iterdir()) == []


def test_writing_a_part_again_replaces_it(tmp_path: Path) -> None:
    encoder = TableEncoder(ISSUE)
    write_part(tmp_path, 1, "issue", rows(10), encoder.inserts)
    again = write_part(tmp_path, 1, "issue", rows(3), encoder.inserts)
    assert again.rows == 3
    assert (tmp_path / again.file).stat().st_size == again.bytes + 4


def test_a_part_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def failing() -> object:
        yield {"id": 1}
        raise RuntimeError("lost connection")

    with pytest.raises(RuntimeError):
        write_part(tmp_path, 1, "issue", failing(), TableEncoder(ISSUE).inserts)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_progress_adds_up_to_the_rows(tmp_path: Path) -> None:
    heard: list[int] = []
    write_part(tmp_path, 1, "issue", rows(1000), TableEncoder(ISSUE).inserts, heard.append)
    assert len(heard) > 1
    assert sum(heard) == 1000


def test_a_snapshot_that_was_removed_while_read_is_told(tmp_path: Path) -> None:
    directory, manifest = finished(tmp_path)
    blocks = snapshots.blocks(directory, manifest)
    next(blocks)
    (directory / manifest.parts[1].file).unlink()
    with pytest.raises(SnapshotGone, match="frames-unreadable"):
        list(blocks)
