"""`python -m tests.deploy.observability` writes the dashboard, the alert rules and their cases again.

Contract: the same lists make the same bytes; a test compares the files in the repository with what is made here.
YAML is written as JSON values under block keys, which every YAML reader takes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping

from tests.deploy.alerts import ALERTS, Alert, Series
from tests.deploy.panels import ROWS, Panel
from tests.docs.fences import ROOT

FOLDER = ROOT / "deploy" / "observability"
MADE = "# Made by `python -m tests.deploy.observability`.\n"
ACROSS, WIDTH, HEIGHT = 4, 6, 7
"""Panels in a line; their size on Grafana's grid, which is 24 wide."""


def dashboard() -> str:
    """Return the dashboard as Grafana imports and exports it."""
    document = {
        "uid": "zero-changesource",
        "title": "zero-changesource",
        "description": "Upstream lag, pipeline, endpoint and cache.",
        "tags": ["changesource", "zero"],
        "editable": True,
        "refresh": "10s",
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_data_source(), _instances()]},
        "panels": list(_panels()),
    }
    return json.dumps(document, indent=1) + "\n"


def rules() -> str:
    """Return the alert rules as Prometheus loads them."""
    lines = [MADE, "groups:\n", "  - name: changesource\n", "    rules:\n"]
    for alert in ALERTS:
        lines.append(f"      - alert: {alert.name}\n        expr: {_quoted(alert.expression)}\n")
        lines.append(f"        for: {alert.minutes}m\n" if alert.minutes else "")
        lines.append(f"        labels: {_quoted({'severity': alert.severity})}\n        annotations:\n")
        lines += [f"          {key}: {_quoted(text)}\n" for key, text in _annotations(alert).items()]
    return "".join(lines)


def cases() -> str:
    """Return a firing and a quiet case of every alert, for `promtool test rules`."""
    lines = [MADE, "rule_files: [alerts.yml]\n", "evaluation_interval: 1m\n", "tests:\n"]
    for alert in ALERTS:
        lines += [_case(alert, alert.fires, fires=True), _case(alert, alert.quiet, fires=False)]
    return "".join(lines)


FILES: dict[str, Callable[[], str]] = {"dashboard.json": dashboard, "alerts.yml": rules, "alerts.test.yml": cases}


def _case(alert: Alert, series: Series, *, fires: bool) -> str:
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    # Only which alerts fire and with which labels: the text has the value of the moment.
    expected = f'count by (alertname) (ALERTS{{alertname="{alert.name}",alertstate="firing"{_matchers(alert.labels)}}})'
    sample = [{"labels": _labels(alert), "value": 1}] if fires else []
    test = {"expr": expected, "eval_time": f"{alert.after_minutes}m", "exp_samples": sample}
    name = f"{alert.name} {'fires' if fires else 'stays quiet'}"
    return (
        f"  - name: {_quoted(name)}\n    interval: 1m\n    input_series: {_quoted(inputs)}\n"
        f"    promql_expr_test: {_quoted([test])}\n"
    )


def _labels(alert: Alert) -> str:
    return f'{{alertname="{alert.name}"}}'


def _matchers(labels: Mapping[str, str]) -> str:
    return "".join(f",{name}={_quoted(value)}" for name, value in labels.items())


def _annotations(alert: Alert) -> dict[str, str]:
    return {"summary": alert.summary, "description": alert.action}


def _quoted(value: object) -> str:
    return json.dumps(value)


def _data_source() -> dict[str, object]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}


def _instances() -> dict[str, object]:
    query = 'label_values({__name__=~"changesource_(log_head|cache_connections)"}, instance)'
    return {
        "name": "instance",
        "type": "query",
        "label": "Instance",
        "datasource": _source(),
        "query": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _source() -> dict[str, str]:
    return {"type": "prometheus", "uid": "${datasource}"}


def _panels() -> Iterator[dict[str, object]]:
    number, top = 1, 0
    for title, panels in ROWS.items():
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "gridPos": {"x": 0, "y": top, "w": 24, "h": 1},
            "panels": [],
        }
        number, top = number + 1, top + 1
        for at, panel in enumerate(panels):
            position = {"x": at % ACROSS * WIDTH, "y": top + at // ACROSS * HEIGHT, "w": WIDTH, "h": HEIGHT}
            yield _panel(panel, number, position)
            number += 1
        top += -(-len(panels) // ACROSS) * HEIGHT


def _panel(panel: Panel, number: int, position: Mapping[str, int]) -> dict[str, object]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": _source(),
        "gridPos": position,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [{"refId": "A", "datasource": _source(), "expr": panel.query, "legendFormat": panel.legend}],
    }


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, make in FILES.items():
        (FOLDER / name).write_text(make())


if __name__ == "__main__":
    main()
