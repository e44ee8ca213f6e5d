"""Seeds in a folder that hosts share: uploaded, listed, fetched and verified, pruned."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from changesource_sdk.errors import ChangesourceError, ConfigurationError, StateError
from changesource_sdk.seed.fetch import claim_from_log, fetch_seed
from changesource_sdk.seed.file import replica_version
from changesource_sdk.seed.publish import CONTENT, DESCRIPTION, SeedFolder, check_fits
from tests.changesource_sdk.pipeline.compaction.compacted import CompactedLog
from tests.changesource_sdk.seed.seeded_log import contents, query, seed_of
from tests.changesource_sdk.seed.test_build import Unsorted


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CompactedLog]:
    with closing(CompactedLog(tmp_path / "state", Unsorted())) as made:
        yield made


def fetched(log: CompactedLog, folder: Path, target: Path) -> str:
    seeds = SeedFolder(str(folder))
    return fetch_seed(seeds, seeds.newest("zero", 0), target, claim_from_log(log.store)).replica_version


def test_every_fetched_copy_has_a_version_of_its_own(log: CompactedLog, tmp_path: Path) -> None:
    made = seed_of(log.store, tmp_path / "built.db", tmp_path / "seeds")
    first = fetched(log, tmp_path / "seeds", tmp_path / "a.db")
    second = fetched(log, tmp_path / "seeds", tmp_path / "b.db")
    assert made.replica_version is not None
    assert made.replica_version < first < second
    for name, version in (("a.db", first), ("b.db", second)):
        assert query(tmp_path / name, 'SELECT stateVersion FROM "_zero.replicationState"') == [(version,)]
        assert contents(tmp_path / name) == contents(tmp_path / "built.db")
    known = {each.key.replica_version for each in log.store.open_coordination().consumers("zero", 0)}
    assert known == {made.replica_version, first, second}


def test_an_uploaded_file_is_no_replica_until_it_is_fetched(log: CompactedLog, tmp_path: Path) -> None:
    seed_of(log.store, None, tmp_path / "seeds")
    seeds = SeedFolder(str(tmp_path / "seeds"))
    seeds.fetch(seeds.newest("zero", 0), tmp_path / "raw.db")
    assert replica_version(tmp_path / "raw.db") is None


def test_what_an_earlier_replica_left_next_to_the_file_is_removed(log: CompactedLog, tmp_path: Path) -> None:
    seed_of(log.store, None, tmp_path / "seeds")
    for suffix in ("-wal", "-wal2", "-shm"):
        (tmp_path / f"a.db{suffix}").write_text("of another replica")
    fetched(log, tmp_path / "seeds", tmp_path / "a.db")
    assert sorted(path.name for path in tmp_path.glob("a.db*")) == ["a.db"]


@pytest.mark.parametrize("damage", ["truncated", "tampered", "missing", "longer", "description"])
def test_a_damaged_seed_is_refused_and_nothing_is_left(log: CompactedLog, tmp_path: Path, damage: str) -> None:
    seed_of(log.store, None, tmp_path / "seeds")
    (folder,) = (tmp_path / "seeds").iterdir()
    content = (folder / CONTENT).read_bytes()
    described = json.loads((folder / DESCRIPTION).read_text())
    match damage:
        case "truncated":
            (folder / CONTENT).write_bytes(content[: len(content) // 2])
        case "tampered":
            changed = bytearray(content)
            changed[len(changed) // 2] ^= 1
            (folder / CONTENT).write_bytes(changed)
        case "missing":
            (folder / CONTENT).unlink()
        case "longer":
            (folder / DESCRIPTION).write_text(json.dumps(described | {"bytes": 4096}))
        case "description":
            (folder / DESCRIPTION).write_text(json.dumps(described | {"sha256": "0" * 64}))
    with pytest.raises(StateError, match="seed-damaged"):
        fetched(log, tmp_path / "seeds", tmp_path / "a.db")
    assert list(tmp_path.glob("a.db*")) == []


def test_a_half_uploaded_seed_is_not_one(log: CompactedLog, tmp_path: Path) -> None:
    seed_of(log.store, None, tmp_path / "seeds")
    (folder,) = (tmp_path / "seeds").iterdir()
    (folder / DESCRIPTION).unlink()
    with pytest.raises(StateError, match="no-seed"):
        fetched(log, tmp_path / "seeds", tmp_path / "a.db")


def test_a_seed_of_another_app_release_or_publication_is_refused(log: CompactedLog, tmp_path: Path) -> None:
    seed_of(log.store, None, tmp_path / "seeds")
    seeds = SeedFolder(str(tmp_path / "seeds"))
    with pytest.raises(StateError, match="no-seed"):
        seeds.newest("other", 0)
    newest = seeds.newest("zero", 0)
    check_fits(newest, "1.9.0", (), "here")
    with pytest.raises(ConfigurationError, match="seed-of-other-publications"):
        check_fits(newest, "1.9.0", ("p",), "here")
    with pytest.raises(ConfigurationError, match="unknown-release"):
        check_fits(newest, "9.9.9", None, "here")
    with pytest.raises(ConfigurationError, match="seed-of-another-release"):
        check_fits(replace(newest, release="1.8.0"), "1.9.0", None, "here")


def test_old_seeds_are_pruned_and_no_longer_recorded(log: CompactedLog, tmp_path: Path) -> None:
    made = [seed_of(log.store, None, tmp_path / "seeds", keep=2) for _ in range(4)]
    versions = [each.record.version for each in made]
    assert [each.version for each in SeedFolder(str(tmp_path / "seeds")).list("zero", 0)] == versions[2:]
    assert [each.version for each in log.store.seeds.all()] == versions[2:]
    assert [each.pruned for each in made] == [0, 0, 1, 1]


@pytest.mark.parametrize("uri", ["nowhere://bucket/x", "s3:///"])
def test_an_unusable_uri_is_an_error_with_a_fix(uri: str) -> None:
    with pytest.raises(ChangesourceError) as raised:
        SeedFolder(uri).list("zero", 0)
    assert raised.value.fix
