"""Dashboard and alerts: current, about metrics that exist, and tried with a real Prometheus on a running stack."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from changesource_sdk.observe.metrics import EndpointMetrics
from reference_cache.client import Client
from reference_cache.sync_server.metrics import CacheMetrics
from reference_cache.zql.query.builder import Queries
from reference_cache.zql.schema import schema, table
from tests.deploy.alerts import ALERTS
from tests.deploy.observability import FILES, FOLDER
from tests.deploy.panels import ROWS, Panel
from tests.support.child_process import ChildProcess
from tests.support.peers.reference_cache import ReferenceCache
from tests.support.peers.serving import Serving
from tests.support.ports import free_port
from tests.support.tools import prometheus_programs
from tests.support.waiting import until
from tests.support.workloads.sqlite_store import SqliteStore

PANELS = [panel for panels in ROWS.values() for panel in panels]
KEY = "a-key-of-the-test"
ITEMS = schema([table("items", {"id": "string", "n": "number"})], {})


def known_metrics() -> set[str]:
    """Return the names of our metrics as PromQL uses them."""
    families = [family for each in (EndpointMetrics(), CacheMetrics()) for family in each.registry.collect()]
    suffix = {"counter": "_total", "histogram": "_bucket"}
    return {family.name + suffix.get(family.type, "") for family in families}


def named(query: str) -> set[str]:
    return set(re.findall(r"changesource_\w+", query))


@pytest.mark.parametrize("name", FILES)
def test_the_file_is_what_the_lists_make(name: str) -> None:
    assert (FOLDER / name).read_text() == FILES[name](), "run: python -m tests.deploy.observability"


def test_panels_show_every_metric_and_alerts_ask_for_no_other() -> None:
    assert set().union(*(named(panel.query) for panel in PANELS)) == known_metrics()
    assert set().union(*(named(alert.expression) for alert in ALERTS)) <= known_metrics()


@pytest.mark.parametrize(
    "check",
    [("check", "rules", "alerts.yml"), ("check", "config", "prometheus.yml"), ("test", "rules", "alerts.test.yml")],
)
def test_promtool_accepts(check: tuple[str, ...]) -> None:
    _, promtool = prometheus_programs()
    ended = subprocess.run([promtool, *check], cwd=FOLDER, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "SUCCESS" in ended.stdout + ended.stderr


def test_promtool_finds_an_alert_that_does_not_fire(tmp_path: Path) -> None:
    rules = (
        (FOLDER / "alerts.yml")
        .read_text()
        .replace("changesource_stage_failing == 1", "changesource_stage_failing == 2")
    )
    (tmp_path / "alerts.yml").write_text(rules)
    (tmp_path / "alerts.test.yml").write_text((FOLDER / "alerts.test.yml").read_text())
    _, promtool = prometheus_programs()
    command = [str(promtool), "test", "rules", "alerts.test.yml"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=120).returncode != 0


class Prometheus:
    """A server that scrapes two addresses each second."""

    def __init__(self, folder: Path, endpoint: int, cache: int) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(FOLDER / "alerts.yml")],
            "scrape_configs": [
                {"job_name": "changesource-endpoint", "params": {"apiKey": [KEY]}, **_target(endpoint)},
                {"job_name": "changesource-cache", **_target(cache)},
            ],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))
        options = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}"]
        address = f"--web.listen-address={self.url.removeprefix('http://')}"
        self.process = ChildProcess([prometheus_programs()[0], *options, address])

    def ask(self, query: str) -> list[object]:
        """Return the samples of a query now; none while the server does not answer."""
        try:
            with urllib.request.urlopen(
                f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
            ) as answer:
                result: list[object] = json.load(answer)["data"]["result"]
                return result
        except OSError:
            return []


def _target(port: int) -> dict[str, object]:
    return {"static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SqliteStore, ReferenceCache, Prometheus]]:
    folder = tmp_path_factory.mktemp("observed")
    store = SqliteStore(folder / "app.db", "CREATE TABLE items (id TEXT PRIMARY KEY, n INTEGER NOT NULL)")
    options = ("--permissions", "allow-all", "--seed-every", "1h", "--seed-to", str(folder / "seeds"))
    with ExitStack() as open_peers:
        settings = {"path": str(store.path)}
        serving = Serving("sqlite", settings, folder / "state", api_key=KEY, options=options)
        open_peers.enter_context(serving).start()
        cache = open_peers.enter_context(ReferenceCache(serving.stream_url, folder)).start()
        prometheus = Prometheus(folder, serving.port, cache.port)
        open_peers.enter_context(prometheus.process)
        yield store, cache, prometheus


def _has(key: str, rows: Any) -> bool:
    return any(row["id"] == key for row in rows)


def _asked(panel: Panel) -> str:
    return panel.query.replace("$__rate_interval", "1m").replace("$instance", ".*")


async def test_every_query_of_the_dashboard_returns_data(stack: tuple[SqliteStore, ReferenceCache, Prometheus]) -> None:
    store, cache, prometheus = stack
    async with Client(cache.url, ITEMS, user_id="ann") as client:
        view = client.query(Queries(ITEMS).table("items"))
        for number in range(3):
            key = f"row-{number}"
            store.run(f"INSERT INTO items VALUES ('{key}', {number})")
            await view.until(partial(_has, key))
        for panel in PANELS:
            until(partial(prometheus.ask, _asked(panel)), f"data for {panel.title}: {_asked(panel)}")
    assert prometheus.ask('ALERTS{alertstate="firing"}') == []
