"""What a seed is made of, decided once and kept in a file, so that a build that was killed continues with the same.

The plan names a snapshot and the log's head of that moment. From then on the log's record of seeds holds both.
"""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path

from changesource_sdk.changelog.coordination.seeds import SeedRecord
from changesource_sdk.changelog.files.atomic_json import read_json, write_json
from changesource_sdk.changelog.files.disk import disk_errors
from changesource_sdk.changelog.log import Log, SnapshotRecord
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.errors import StateError
from changesource_sdk.seed.layout import NEWEST, layout_of
from changesource_sdk.system_tables import Permissions
from service_kit.private_files import new_folder

_FORMAT = 1
_FILE = "plan.json"
REMOTE = "seed-"
"""How the names of a build's folders in a remote spool begin; no watermark does."""


@dataclass(frozen=True, slots=True)
class SeedOptions:
    """Whose replica it is: app, shard, publications, release of zero-cache, and the permissions row."""

    app_id: str = "zero"
    shard: int = 0
    publications: tuple[str, ...] = ()
    release: str = NEWEST
    permissions: Permissions = field(default_factory=Permissions)


@dataclass(frozen=True, slots=True)
class Plan:
    """One seed: the snapshot `base` and the log after it up to `head`, where `schema` is; rows have `version`."""

    base: str
    head: str
    version: str
    schema: str
    created_ms: float
    target: str
    app_id: str
    shard: int
    release: str
    publications: tuple[str, ...]
    permissions: str

    @property
    def remote_rows(self) -> str:
        """The folder of rows at the head, in the work folder, and in a remote spool if there is one."""
        return f"{REMOTE}{self.head}"

    @property
    def remote_pieces(self) -> str:
        """The folder of the pieces in a remote spool."""
        return f"{REMOTE}pieces-{self.version}"

    def record(self) -> SeedRecord:
        """Return the seed as the log records it while it is built: the log is kept from the snapshot on."""
        return SeedRecord(
            self.version, self.app_id, self.shard, self.release, self.head, self.base, self.created_ms, self.target
        )


def open_plan(log_store: LogStore, options: SeedOptions, work: Path, target: str) -> tuple[Plan, SnapshotRecord]:
    """Return the plan in the folder `work` if it can be continued, else a new one in an empty folder.

    The plan is recorded in the log. Raises `StateError` if the log has no snapshot yet, `ConfigurationError` for an
    unknown release.
    """
    layout_of(options.release)
    with closing(log_store.open_log()) as log:
        known = log.snapshots()
        if not known:
            raise StateError(
                "no-snapshot", "the change log has no snapshot yet", str(log_store.layout.root), "run `serve` first"
            )
        plan = _kept(log, known[-1], options, work, target)
        if plan is None:
            plan = _new(log_store, log, known[-1], options, work, target)
    log_store.seeds.put(plan.record())
    return plan, known[-1]


def _kept(log: Log, newest: SnapshotRecord, options: SeedOptions, work: Path, target: str) -> Plan | None:
    content = read_json(work / _FILE)
    if content is None or content.pop("format", None) != _FORMAT:
        return None
    try:
        plan = Plan(**{**content, "publications": tuple(content["publications"])})  # type: ignore[arg-type]
    except (TypeError, KeyError):
        return None
    wanted = (target, options.app_id, options.shard, options.release, options.publications, str(options.permissions))
    same = wanted == (plan.target, plan.app_id, plan.shard, plan.release, plan.publications, plan.permissions)
    state = log.state()
    is_there = plan.base == newest.watermark and state.oldest <= plan.base and plan.head <= state.head
    return plan if same and is_there else None


def _new(log_store: LogStore, log: Log, base: SnapshotRecord, options: SeedOptions, work: Path, target: str) -> Plan:
    state, now_ms = log.state(), time.time() * 1000
    with closing(log_store.open_coordination()) as coordination:
        version = coordination.issue(options.app_id, options.shard, state.head, held=base.watermark, now_ms=now_ms)
    plan = Plan(
        base=base.watermark,
        head=state.head,
        version=version,
        schema=state.schema,
        created_ms=now_ms,
        target=target,
        app_id=options.app_id,
        shard=options.shard,
        release=options.release,
        publications=options.publications,
        permissions=str(options.permissions),
    )
    with disk_errors(work):
        shutil.rmtree(work, ignore_errors=True)
        new_folder(work)
        write_json(work / _FILE, {"format": _FORMAT, **asdict(plan)}, durable=True)
    return plan
