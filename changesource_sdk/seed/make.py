"""One seed from start to end: build, upload, install, and the record that keeps the log for it."""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from changesource_sdk.changelog.coordination.consumers import ConsumerKey
from changesource_sdk.changelog.coordination.seeds import SeedRecord, check_covered, ready
from changesource_sdk.changelog.files.disk import disk_errors
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.observe.stages import Stage
from changesource_sdk.seed.build import SeedBuild, SeedProgress
from changesource_sdk.seed.file import assign_version, check_target, install, sha256, write_checksum
from changesource_sdk.seed.lanes import SeedLane
from changesource_sdk.seed.plan import REMOTE, Plan, SeedOptions, open_plan
from changesource_sdk.seed.publish import Description, SeedFolder

STAGE = "seed"


@dataclass(frozen=True, slots=True)
class Target:
    """Where a seed goes: the path of a cache's replica, a folder of seeds, or both. `keep` seeds stay in the folder."""

    replica: Path | None = None
    folder: SeedFolder | None = None
    keep: int = 2

    def __str__(self) -> str:
        return ", ".join(str(each) for each in (self.replica, self.folder) if each is not None)


@dataclass(frozen=True, slots=True)
class MadeSeed:
    """The result: the seed's record, and the replica version of the installed file (None if only uploaded)."""

    record: SeedRecord
    replica_version: str | None
    compressed_bytes: int | None
    pruned: int


def make_seed(
    log_store: LogStore, lane: SeedLane, options: SeedOptions, target: Target, work: Path, progress: SeedProgress
) -> MadeSeed:
    """Build a seed of the log's head in the folder `work` and put it where `target` says.

    One at a time per log. A call that was killed is continued by the next one with the same arguments.
    """
    if target.replica is not None:
        check_target(target.replica)
    with log_store.seeding():
        stage = Stage(log_store.reports, STAGE)
        stage.start("seeding", 0)
        try:
            with stage.beating():
                return _make(log_store, lane, options, target, work, _reported(stage, progress))
        finally:
            stage.update(state="idle")


def _reported(stage: Stage, progress: SeedProgress) -> SeedProgress:
    """Return progress that is shown to the caller and in the report of the stage."""

    def planned(rows: int) -> None:
        stage.update(total=rows)
        progress.planned(rows)

    def done(rows: int) -> None:
        stage.update(rows=rows, done=rows)
        progress.done(rows)

    return SeedProgress(planned, done)


def _make(
    log_store: LogStore, lane: SeedLane, options: SeedOptions, target: Target, work: Path, progress: SeedProgress
) -> MadeSeed:
    plan, base = open_plan(log_store, options, work, str(target))
    _forget_unfinished(log_store, plan)
    _sweep_spool(log_store, (plan.remote_rows, plan.remote_pieces))
    built = SeedBuild(log_store, lane, options, plan, base.directory, work, progress).run()
    with disk_errors(built.path):
        size = built.path.stat().st_size
    record = ready(plan.record(), built.rows, size)
    compressed = None
    if target.folder is not None:
        compressed = target.folder.upload(built.path, _description(plan, record, sha256(built.path))).compressed_bytes
    with closing(log_store.open_log()) as log:
        # The record keeps what is needed, unless the log was lost or reset while the seed was built.
        check_covered(log, plan.head)
    log_store.seeds.put(record)
    version = None
    if target.replica is not None:
        version = _install(log_store, plan, built.path, target.replica)
    pruned = _prune(log_store, record, target)
    _sweep_spool(log_store)
    shutil.rmtree(work, ignore_errors=True)
    return MadeSeed(record, version, compressed, pruned)


def _forget_unfinished(log_store: LogStore, plan: Plan) -> None:
    """Forget builds that were given up: only one runs at a time, and this one has another plan."""
    given_up = [each.version for each in log_store.seeds.all() if each.state == "building"]
    log_store.seeds.remove(*(version for version in given_up if version != plan.version))


def _sweep_spool(log_store: LogStore, kept: tuple[str, ...] = ()) -> None:
    """Delete what builds left in a remote spool, but for these folders."""
    spool = log_store.files.spool
    if spool is None:
        return
    for folder in spool.list():
        if folder.startswith(REMOTE) and folder not in kept:
            spool.delete(folder)


def _description(plan: Plan, record: SeedRecord, digest: str) -> Description:
    return Description(
        app_id=plan.app_id,
        shard=plan.shard,
        publications=plan.publications,
        release=plan.release,
        watermark=plan.head,
        version=plan.version,
        created_ms=plan.created_ms,
        rows=record.rows,
        bytes=record.bytes,
        compressed_bytes=0,
        sha256=digest,
    )


def _install(log_store: LogStore, plan: Plan, built: Path, replica: Path) -> str:
    """Make the built file a replica, with the version of its own rows: only this copy has it."""
    now_ms = time.time() * 1000
    with closing(log_store.open_coordination()) as coordination:
        # Renews the time from which the log is kept for a cache that has not connected yet.
        coordination.acknowledge(ConsumerKey(plan.app_id, plan.shard, plan.version), plan.head, now_ms)
    assign_version(built, plan.app_id, plan.publications, plan.version, now_ms)
    install(built, replica)
    write_checksum(replica)
    return plan.version


def _prune(log_store: LogStore, newest: SeedRecord, target: Target) -> int:
    """Delete all but the newest `keep` seeds of the folder, and forget those and earlier ones of the same file."""
    kept = {newest.version}
    pruned = 0
    if target.folder is not None:
        known = target.folder.list(newest.app_id, newest.shard)
        kept |= {each.version for each in known[-target.keep :]}
        for each in known[: -target.keep]:
            target.folder.delete(each)
            pruned += 1
    same = [
        each
        for each in log_store.seeds.all()
        if (each.app_id, each.shard, each.target) == (newest.app_id, newest.shard, newest.target)
    ]
    log_store.seeds.remove(*(each.version for each in same if each.version not in kept))
    return pruned
