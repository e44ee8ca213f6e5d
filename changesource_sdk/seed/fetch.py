"""Fetches a seed for a cache: checks that the log continues it, downloads, verifies, and installs it.

The log is asked through a running endpoint, which needs nothing but its URL, or directly. It issues a replica version
for this copy; without one there is no replica, so an unusable seed never reaches a cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from changesource_sdk.changelog.coordination.seeds import check_covered, claim
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.endpoint.fetch_claim import claim_at
from changesource_sdk.seed.file import assign_version, check_target, install
from changesource_sdk.seed.pieces import Rows
from changesource_sdk.seed.publish import Description, SeedFolder

Claim = Callable[[Description, bool], str]
"""Issues a replica version for a copy of a seed; with True it only checks that it could, and returns "".

Raises `StateError` with the code `seed-not-covered`, or `EndpointError`.
"""


@dataclass(frozen=True, slots=True)
class FetchedSeed:
    """What was installed."""

    description: Description
    replica_version: str


def fetch_seed(
    folder: SeedFolder, description: Description, target: Path, claim_copy: Claim, done: Rows = lambda size: None
) -> FetchedSeed:
    """Install a copy of a seed at `target`. Blocking. Nothing is at `target` unless all of it succeeded."""
    check_target(target)
    claim_copy(description, True)
    partial = target.with_name(target.name + ".fetching")
    try:
        folder.fetch(description, partial, done)
        version = claim_copy(description, False)
        now_ms = time.time() * 1000
        assign_version(partial, description.app_id, description.publications, version, now_ms)
        install(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return FetchedSeed(description, version)


def claim_from_log(log_store: LogStore) -> Claim:
    """Claim directly from a log."""

    def claim_copy(description: Description, only_check: bool) -> str:
        with closing(log_store.open_log()) as log, closing(log_store.open_coordination()) as coordination:
            if only_check:
                check_covered(log, description.watermark)
                return ""
            now_ms = time.time() * 1000
            return claim(log, coordination, description.app_id, description.shard, description.watermark, now_ms)

    return claim_copy


def claim_from_endpoint(url: str) -> Claim:
    """Claim through the endpoint that zero-cache connects to; `url` is its `ZERO_UPSTREAM_DB`."""

    def claim_copy(description: Description, only_check: bool) -> str:
        return claim_at(url, description.app_id, description.shard, description.watermark, only_check=only_check)

    return claim_copy
