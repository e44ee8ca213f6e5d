"""The reference pages that are made from the code: `python -m tests.docs.reference_pages` writes them anew.

Commands and their options, settings of `serve`, of the adapters and of the cache, metrics, and (in `adapter_page`) the
names that adapters use: each page says what the
code says of itself, in the code's order. Contract: the same code makes the same bytes, whatever the environment holds;
a test compares the pages in the repository with what is made here.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, Field, fields
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from adapters.kafka.settings import KafkaSettings
from adapters.postgres import PostgresAdapter
from adapters.spark_tables import SparkTablesAdapter
from adapters.sqlite import SqliteAdapter
from changesource_cli.app import Commands
from changesource_cli.output import EXIT_CODES
from changesource_sdk.config import TABLES, ServeConfig
from changesource_sdk.observe.metrics import EndpointMetrics
from reference_cache.config import settings
from reference_cache.sync_server.metrics import CacheMetrics
from tests.deploy.alerts import ALERTS, Alert
from tests.docs.adapter_page import adapter_page
from tests.docs.fences import ROOT

FOLDER = "docs/reference"
MADE = "This page is made by `python -m tests.docs.reference_pages`.\n"
ADAPTERS: dict[str, tuple[str, Callable[..., object]]] = {
    "sqlite": ("sqlite.md", SqliteAdapter),
    "postgres": ("postgres.md", PostgresAdapter),
    "kafka": ("kafka.md", KafkaSettings.parse),
    "spark-tables": ("spark-tables.md", SparkTablesAdapter),
}
"""What takes an adapter's settings, and the page that explains them."""


def command_line() -> str:
    """Every command, its options and its examples."""
    intro = "Every command has `--help`; those with `--json` print one JSON document or one per line for machines.\n"
    parts = ["# The command line\n\n", intro, f"{MADE}\n", f"{_plain(EXIT_CODES)}\n"]
    for name, command in Commands().items():
        about, examples = _examples(command.epilog)
        parts += [f"\n## changesource {name}\n\n", _paragraphs(command.help), _paragraphs(about)]
        parts += [_table(("option", "meaning"), map(_option, command.params))]
        parts += [f"\n```text\n{examples}\n```\n"] if examples else []
    return "".join(parts)


def settings_page() -> str:
    """Every setting there is, with where it is written and its default."""
    serve = _table(("option", "variable", "default", "meaning"), map(_serve_setting, fields(ServeConfig)))
    cache = _table(("variable", "default", "meaning"), map(_cache_setting, settings()))
    parts = [f"# Settings\n\n{MADE}", "\n## `changesource serve`\n\n"]
    parts += ["Defaults, then the TOML file of `--config`, then variables, then flags.\n\n", serve]
    for name, (page, taker) in ADAPTERS.items():
        link = f"What they mean: [{name}](../how-to/{page}).\n\n"
        given = "Given by `--set name=value`, in the table `[set]`, or as `CHANGESOURCE_SET_NAME`. "
        rows = [_adapter_setting(each) for each in inspect.signature(taker).parameters.values()]
        parts += [f"\n## Adapter `{name}`\n\n", given, link, _table(("setting", "default"), rows)]
    parts += ["\n## `changesource cache`\n\n", "More in [run the cache](../how-to/run-the-cache.md).\n\n", cache]
    return "".join(parts)


def metrics_page() -> str:
    """Every metric of both servers, as `/metrics` names it."""
    parts = [f"# Metrics\n\n{MADE}"]
    for title, registry in (
        ("The endpoint", EndpointMetrics().registry),
        ("The cache", CacheMetrics().registry),
    ):
        parts += [f"\n## {title}\n\n", _table(("metric", "kind", "labels", "meaning"), _metrics(registry))]
    return "".join(parts)


def alerts_page() -> str:
    """Every alert of `deploy/observability/alerts.yml`."""
    intro = "They are in `deploy/observability/alerts.yml`; [observe](../how-to/observe.md) says how to load them.\n\n"
    head = ("alert", "severity", "expression", "for", "meaning and what to do")
    return f"# Alerts\n\n{MADE}{intro}" + _table(head, map(_alert, ALERTS))


def _alert(alert: Alert) -> tuple[str, str, str, str, str]:
    lasting = f"{alert.minutes} minutes" if alert.minutes else ""
    said = re.sub(r"\{\{ \$(?:labels\.)?(\w+)[^}]*\}\}", r"(\1)", alert.summary).replace("((", "(").replace("))", ")")
    return _code(alert.name), alert.severity, _code(alert.expression), lasting, f"{_plain(said)} {alert.action}"


PAGES: dict[str, Callable[[], str]] = {
    "adapter.md": adapter_page,
    "command-line.md": command_line,
    "settings.md": settings_page,
    "metrics.md": metrics_page,
    "alerts.md": alerts_page,
}


def _examples(epilog: str | None) -> tuple[str, str]:
    """What an epilog says, and the examples it ends with."""
    about, _, examples = (epilog or "").partition("Examples:")
    return about.strip(), "\n".join(line for line in examples.split("\n") if line.strip())


def _paragraphs(text: str | None) -> str:
    return "".join(f"{_plain(paragraph)}\n\n" for paragraph in (text or "").split("\n\n") if paragraph.strip())


def _plain(text: object) -> str:
    """Text for a cell or a paragraph: one line, nothing that Markdown or a table would take for its own."""
    return re.sub(r"([|<>*_\[\]])", r"\\\1", " ".join(str(text).split()))


def _code(text: object) -> str:
    return f"`{str(text).replace('|', '/')}`" if str(text) else ""


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head)]
    lines += [["---"] * len(lines[0]), *map(list, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _option(parameter: Any) -> tuple[str, str]:
    names = parameter.opts + parameter.secondary_opts if parameter.param_type_name == "option" else [parameter.name]
    shown = " ".join(_code(name if name.startswith("-") else name.upper()) for name in names)
    return shown, _plain(getattr(parameter, "help", None) or "")


def _serve_setting(setting: Field[Any]) -> tuple[str, str, str, str]:
    meaning = _plain(setting.metadata["about"])
    if setting.name in TABLES:
        return _code(f"[{TABLES[setting.name]}]"), "", "", meaning
    flag = "argument" if setting.name == "adapter" else _code("--" + setting.name.replace("_", "-"))
    return flag, _code(f"CHANGESOURCE_{setting.name.upper()}"), _default(setting), meaning


def _cache_setting(setting: Field[Any]) -> tuple[str, str, str]:
    old = "".join(f"; also `{name}`" for name in setting.metadata["old"])
    return _code(setting.metadata["variable"]), _default(setting), _plain(setting.metadata["about"]) + old


def _adapter_setting(parameter: inspect.Parameter) -> tuple[str, str]:
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return f"others (`{parameter.name}`)", "see its page"
    default = parameter.default
    return _code(parameter.name), "required" if default is inspect.Parameter.empty else _value(default)


def _default(setting: Field[Any]) -> str:
    return "" if setting.default is MISSING else _value(setting.default)


def _value(value: object) -> str:
    if value is None or value == "" or value == ():
        return ""
    return _code(str(value).lower() if isinstance(value, bool) else value)


def _metrics(registry: CollectorRegistry) -> Iterator[tuple[str, str, str, str]]:
    for collector in registry._collector_to_names:
        assert isinstance(collector, MetricWrapperBase)
        (family,) = collector.describe()
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = " ".join(_code(label) for label in getattr(collector, "_labelnames", ()))
        yield _code(name), family.type, labels, _plain(family.documentation.rstrip("."))


def main() -> None:
    for name, make in PAGES.items():
        (ROOT / FOLDER / name).write_text(make())


if __name__ == "__main__":
    main()
