"""Snapshots under a URI: published whole, fetched once, swept with their generation."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.postgres.connection import LogAddress
from changesource_sdk.changelog.postgres.store import PostgresLogStore
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.spool.files import SnapshotFiles
from changesource_sdk.changelog.spool.remote import RemoteSpool
from changesource_sdk.changelog.spool.snapshots import Manifest, complete, stage, write_frames
from changesource_sdk.changelog.writer import LogWriter
from changesource_sdk.errors import ConfigurationError, SnapshotGone
from protocol.framing import frame
from tests.changesource_sdk.changelog.log_fixtures import START_US, transaction
from tests.changesource_sdk.changelog.logs_under_test import postgres_store
from tests.support.peers.postgres_server import PostgresServer


def finished(spool: Path, watermark: str = "0a") -> Path:
    directory = stage(spool, watermark)
    parts = tuple(write_frames(directory, number, [frame(b"[%d]" % number)]) for number in range(3))
    return complete(directory, Manifest(watermark, 3, "{}", 5.0, parts))


@pytest.fixture
def remote(tmp_path: Path) -> RemoteSpool:
    return RemoteSpool((tmp_path / "remote").as_uri())


def files_of(remote: RemoteSpool, host: Path) -> SnapshotFiles:
    return SnapshotFiles(StateDirectory(host).create(), remote)


def content(directory: Path) -> list[bytes]:
    return list(snapshots.blocks(directory, snapshots.read_manifest(directory)))


def test_a_published_snapshot_is_fetched_as_it_was_and_only_once(remote: RemoteSpool, tmp_path: Path) -> None:
    here, there = files_of(remote, tmp_path / "here"), files_of(remote, tmp_path / "there")
    original = finished(here.layout.spool)
    here.publish(original)
    brought = there.fetch(there.layout.spool / "0a")
    assert content(brought) == content(original)
    remote.delete("0a")
    assert there.fetch(there.layout.spool / "0a") == brought
    assert content(brought) == content(original)


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("file:///mnt/spool/", "file:///mnt/spool/log"),
        ("s3://bucket", "s3://bucket/log"),
        ("s3://key@bucket/a/b?region=x&scheme=http", "s3://key@bucket/a/b/log?region=x&scheme=http"),
    ],
)
def test_a_folder_in_the_spool_keeps_the_options_of_its_file_system(uri: str, expected: str) -> None:
    assert RemoteSpool(uri).under("log").uri == expected


def test_a_snapshot_counts_only_with_its_manifest_and_all_parts(remote: RemoteSpool, tmp_path: Path) -> None:
    files = files_of(remote, tmp_path / "here")
    snapshot = files.layout.spool / "0a"
    assert not files.holds(snapshot)
    files.publish(finished(files.layout.spool))
    assert files.holds(snapshot)
    part = tmp_path / "remote" / "0a" / "part-00001.frames"
    part.write_bytes(part.read_bytes()[:2])
    assert not files.holds(snapshot)
    (tmp_path / "remote" / "0a" / "manifest.json").unlink()
    assert not files.holds(snapshot)


def test_fetching_what_was_swept_tells_that_it_was_replaced(remote: RemoteSpool, tmp_path: Path) -> None:
    with pytest.raises(SnapshotGone, match="snapshot-replaced"):
        files_of(remote, tmp_path).fetch(tmp_path / "spool" / "0a")


def test_sweeping_leaves_what_is_named_and_what_is_not_ours(remote: RemoteSpool, tmp_path: Path) -> None:
    files = files_of(remote, tmp_path / "here")
    for watermark in ("0a", "0b"):
        files.publish(finished(files.layout.spool, watermark))
    (tmp_path / "remote" / "Holiday pictures").mkdir()
    files.sweep_shared(["0b"])
    assert sorted(entry.name for entry in (tmp_path / "remote").iterdir()) == ["0b", "Holiday pictures"]
    assert set(remote.list()) == {"0b", "Holiday pictures"}


def test_a_uri_nobody_understands_is_refused_without_its_secrets() -> None:
    with pytest.raises(ConfigurationError) as refused:
        RemoteSpool("floppy://me:sesame@host/spool").list()
    assert refused.value.code == "bad-spool"
    assert "sesame" not in refused.value.where


def test_a_generation_is_published_before_the_log_names_it_and_its_watermark_is_never_used_again(
    postgres: PostgresServer, remote: RemoteSpool, tmp_path: Path
) -> None:
    address = postgres_store(postgres.url(), tmp_path).address
    here = PostgresLogStore(address, StateDirectory(tmp_path / "here"), remote)
    there = pickle.loads(pickle.dumps(PostgresLogStore(address, StateDirectory(tmp_path / "there"), remote)))
    writer = here.open_writer(lambda: START_US)
    first = _start(here, writer)
    second = _start(here, writer)
    assert list(remote.list()) == [second]
    writer.close()
    reader = there.open_log()
    (record,) = reader.snapshots()
    reader.close()
    assert there.files.holds(record.directory)
    assert content(there.files.fetch(record.directory)) == content(tmp_path / "here" / "spool" / second)
    elsewhere = PostgresLogStore(LogAddress(address.url, "empty_log"), StateDirectory(tmp_path / "new"), remote)
    fresh = elsewhere.open_writer(lambda: 1)
    assert fresh.next_generation() > second > first
    fresh.close()


def _start(store: PostgresLogStore, writer: LogWriter) -> str:
    watermark = writer.next_generation()
    writer.start_generation(watermark, 3, "{}", finished(store.layout.spool, watermark), 5.0)
    return watermark


def test_a_compacted_snapshot_is_named_only_if_it_was_published(
    postgres: PostgresServer, remote: RemoteSpool, tmp_path: Path
) -> None:
    address = postgres_store(postgres.url(), tmp_path).address
    store = PostgresLogStore(address, StateDirectory(tmp_path / "here"), remote)
    writer = store.open_writer(lambda: START_US)
    first = _start(store, writer)
    (head,) = writer.append([transaction(4)])
    for publishes, expected in ((False, None), (True, head)):
        directory = finished(store.layout.compaction, head)
        if publishes:
            store.files.publish(directory)
        store.handoff.offer(first, directory)
        assert store.handoff.take(writer) == expected
    assert list(remote.list()) == [head]
    writer.close()
    store.close()
