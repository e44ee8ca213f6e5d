"""The pages on operating and upgrading name metrics, limits and formats that are there."""

import re
from pathlib import Path

from changesource_sdk.changelog.postgres import connection as postgres_connection
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.changelog.sqlite import connection as sqlite_file
from changesource_sdk.config import ServeConfig
from changesource_sdk.endpoint.status import DEAD_AFTER, STUCK_AFTER
from protocol.sync.handshake import MAX_VERSION, MIN_VERSION
from reference_cache.replica import stored_catalog
from reference_cache.view_syncer.cvr import file as cvr_file
from tests.docs.reference_pages import metrics_page

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to"
OPERATE, UPGRADE = ((HOW_TO / name).read_text() for name in ("operate.md", "upgrade.md"))


def test_every_metric_that_an_alert_asks_for_exists() -> None:
    named = set(re.findall(r"changesource_[a-z_]+", OPERATE))
    assert len(named) > 5
    assert [name for name in named if f"`{name}`" not in metrics_page()] == []


def test_limits_on_the_page_are_the_codes() -> None:
    defaults = ServeConfig()
    assert f"no sign of life for {DEAD_AFTER:g} seconds" in OPERATE
    assert f"without progress for {STUCK_AFTER:g} seconds" in OPERATE
    assert f"`--prune-interval` ({defaults.prune_interval:g} s)" in OPERATE
    assert f"`--subscriber-expiry` ({defaults.subscriber_expiry / 86400:g} days)" in OPERATE


def test_formats_on_the_page_are_the_codes() -> None:
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]+) \| [^|]+ \|$", UPGRADE, re.M)
    formats = {
        "change log, SQLite": sqlite_file.FORMAT,
        "change log, Postgres": postgres_connection.FORMAT,
        "snapshot": snapshots.FORMAT,
        "replica of our cache": stored_catalog.FORMAT,
        "client records of our cache": cvr_file.FORMAT,
        "sync protocol of clients": f"{MIN_VERSION} to {MAX_VERSION}",
    }
    assert {name: said for name, said in rows if name in formats} == {name: str(each) for name, each in formats.items()}
