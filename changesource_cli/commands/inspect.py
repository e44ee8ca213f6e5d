"""`changesource inspect`: positions and ages of every stage, from a running endpoint or from the log itself.

With `--digests` it also reads the rows of each stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from changesource_cli.commands import serve
from changesource_cli.holdings import Replicas, print_holdings, stages_hold
from changesource_cli.output import print_json, reported, stdout
from changesource_sdk.changelog.open import open_store
from changesource_sdk.config import ServeConfig, parse_pairs
from changesource_sdk.endpoint.fetch_status import fetch_status
from changesource_sdk.endpoint.log_status import status_of_directory, status_of_log
from changesource_sdk.endpoint.status import Document
from changesource_sdk.errors import ConfigurationError, StateError
from changesource_sdk.verifying.holdings import Holding

SHOWN = 20
"""Dead letters and skips that are printed."""
SCHEMA, SERVED_FROM = ServeConfig().log_schema, ServeConfig().state

EPILOG = "\n\n".join(
    (
        "Examples:",
        "changesource inspect 127.0.0.1:4810",
        "changesource inspect ./changesource-state --json",
        "changesource inspect --log postgresql://user@host/db",
        "changesource inspect ./changesource-state --adapter sqlite --set path=app.db --replica /var/zero/replica.db",
    )
)


def inspect(
    target: Annotated[
        str, typer.Argument(help="State directory, or endpoint as host:port or URL (?apiKey=… for a key).")
    ] = "",
    log: Annotated[
        str | None, typer.Option(envvar="CHANGESOURCE_LOG", help="Log in Postgres, instead.", show_default=False)
    ] = None,
    log_schema: Annotated[str, typer.Option(envvar="CHANGESOURCE_LOG_SCHEMA", help="Schema of that log.")] = SCHEMA,
    digests: Annotated[
        bool, typer.Option("--digests", help="Also read the rows and digest of every table at each stage.")
    ] = False,
    adapter: Annotated[
        str | None, typer.Option(help="Adapter of the upstream, to read its state, too.", show_default=False)
    ] = None,
    pairs: serve.Pairs = None,
    replica: Replicas = None,
    config: Annotated[Path | None, typer.Option(envvar=serve.CONFIG_VARIABLE, help="TOML file, as for serve.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the document instead of tables.")] = False,
) -> None:
    """Show how far every stage is, how long ago it moved and, if asked, what it holds."""
    with reported(as_json=as_json):
        directory = _directory(target) if digests or adapter or replica else None
        document = _document(target, log, log_schema)
        holdings: list[Holding] = []
        if directory is not None:
            flags: dict[str, object] = {"adapter": adapter, "settings": parse_pairs(pairs or [])}
            flags |= {"log": log, "log_schema": log_schema}
            holdings = _holdings(directory, serve.effective_config(config, flags).config, replica or [])
            document["holds"] = [each.as_json() for each in holdings]
        if as_json:
            print_json(document)
            return
        _print(document)
        if holdings:
            print_holdings(holdings)


def _holdings(directory: Path, config: ServeConfig, replicas: list[Path]) -> list[Holding]:
    store = open_store(directory, config.log, config.log_schema, config.spool)
    try:
        return list(stages_hold(store, config, replicas))
    finally:
        store.close()


def _directory(target: str) -> Path:
    """Return the state directory. Raises `ConfigurationError` for an address, from which rows cannot be read."""
    if target and not Path(target).is_dir():
        fix = "give --state's directory, or --log"
        raise ConfigurationError("no-digests", "what a stage holds is read from the log itself", target, fix)
    return Path(target or SERVED_FROM)


def _document(target: str, log: str | None, log_schema: str) -> Document:
    if target and Path(target).is_dir() and log is None:
        return status_of_directory(Path(target))
    if target and not Path(target).is_dir():
        return _fetch(target)
    if log is None:
        raise ConfigurationError(
            "no-target", "there is nothing to inspect", "TARGET", "give a state directory, host:port, or --log"
        )
    return status_of_log(open_store(Path(target or SERVED_FROM), log, log_schema))


def _fetch(target: str) -> Document:
    """Return the document of a running endpoint. Raises `StateError` for a path, which is then no directory."""
    if "://" not in target and ":" not in target:
        raise StateError("no-state", "there is no such directory", target, "give --state's directory, or host:port")
    return fetch_status(target)


def _print(document: Document) -> None:
    log = document["log"]
    assert isinstance(log, dict)
    stdout.print(
        f"log: head {log['head']}, oldest {log['oldest']}, generation {log['generation']}, "
        f"{log['transactions']} transactions, snapshot {log['snapshot'] or '(none yet)'}",
        markup=False,
    )
    _print_upstream(document.get("upstream"))
    stages = document["stages"]
    assert isinstance(stages, dict)
    columns = {
        "verdict": "verdict",
        "state": "state",
        "watermark": "watermark",
        "age": "alive",
        "sinceProgress": "moved",
    }
    _print_table("stage", columns, [{"stage": name, **stage} for name, stage in stages.items()], first="stage")
    _print_sources(document.get("sources"))
    columns = {"shard": "shard", "acknowledged": "acknowledged", "behind": "behind", "age": "heard"}
    _print_table("subscriber", columns, document["subscribers"], first="app")
    columns = {"shard": "shard", "state": "state", "watermark": "watermark", "behind": "behind", "rows": "rows"}
    columns |= {"bytes": "bytes", "age": "made", "target": "target", "problem": "problem"}
    _print_table("seed", columns, document.get("seeds"), first="app")
    columns = {"shard": "shard", "phase": "phase", "sent": "sent", "behind": "behind", "verdict": "verdict"}
    _print_table("stream", columns, document.get("streams"), first="app")
    _print_warnings(document.get("warnings"))
    _print_letters(document.get("deadLetters"))
    _print_skips(document.get("skips"))
    for name, stage in stages.items():
        if error := stage.get("error"):
            where = f" ({error['where']})" if error.get("where") else ""
            stdout.print(f"{name} fails[{error['code']}]: {error['message']}{where}", markup=False)
            stdout.print(f"  fix: {error['fix']}", markup=False)


def _print_upstream(upstream: object) -> None:
    """Print how far the log is behind each source."""
    for source, each in upstream.items() if isinstance(upstream, dict) else []:
        if each["age"] is None:
            stdout.print(f"behind the upstream ({source}): unknown", markup=False)
            continue
        seconds = each["behindSeconds"]
        positions = "unknown" if each["behind"] == "unknown" else f"{each['behind']} positions"
        said = positions if seconds == "unknown" else f"{positions}, {_duration(seconds)}"
        error = f"; it does not answer: {each['error']}" if each["error"] else ""
        stdout.print(f"behind the upstream ({source}): {said}, known {_duration(each['age'])} ago{error}", markup=False)


def _print_letters(letters: object) -> None:
    """Print how many rows consumers did not get as they are upstream, and the newest of them."""
    if not isinstance(letters, dict) or not letters["total"]:
        return
    counts = ", ".join(f"{each['table']} {each['count']} ({each['outcome']})" for each in letters["counts"])
    stdout.print(f"dead letters: {letters['total']}, of {counts}", markup=False)
    for each in letters["newest"][:SHOWN]:
        row = _of_source(each) + f"{each['table']} {each['row']}".strip()
        column = f", column {each['column']}" if each["column"] else ""
        by = f"; skipped by {each['by']}: {each['reason']}" if each["by"] else ""
        line = f"  {row}{column}: {each['outcome']}, {_duration(each['age'])} ago, {each['message']} ({each['where']})"
        stdout.print(f"{line}{by}", markup=False)
        if each["fix"]:
            stdout.print(f"    fix: {each['fix']}", markup=False)
    if letters["total"] > SHOWN:
        stdout.print(f"  {letters['total'] - SHOWN} more; --json has the newest 100", markup=False)


def _print_skips(skips: object) -> None:
    """Print who left out what, when and why."""
    for each in skips[:SHOWN] if isinstance(skips, list) else []:
        what = f"row {each['row']} of {each['table']}" if each["table"] else f"{each['changes']} changes"
        position = f"transaction {each['position']}" if each["position"] else "the snapshot"
        who = f"{each['by']}, {_duration(each['age'])} ago"
        stdout.print(f"skipped {_of_source(each)}{what} in {position}, by {who}: {each['reason']}", markup=False)


def _of_source(entry: Mapping[str, object]) -> str:
    """The name of the source that a dead letter or a skip is about, where there are several."""
    return f"{entry['source']}: " if entry.get("source") else ""


def _print_sources(sources: object) -> None:
    """Print the named sources: where each is, and its tables."""
    columns = {"position": "position", "reads": "reads", "tables": "tables"}
    rows = [
        {"source": name, "position": _position(each), "reads": each["reads"], "tables": ", ".join(each["tables"])}
        for name, each in (sources.items() if isinstance(sources, dict) else ())
    ]
    _print_table("source", columns, rows, first="source")


def _position(source: Mapping[str, object]) -> str:
    return "(to be read)" if source["mustBeRead"] else f"{source['position']!s:.60}"


def _print_warnings(warnings: object) -> None:
    """Print current warnings with their fix, and past ones on a line each."""
    for each in warnings if isinstance(warnings, list) else []:
        where = f" ({each['where']})" if each["where"] else ""
        code = f"[{each['code']}]" if each["code"] else ""
        if not each["current"]:
            line = f"past warning{code}{where}, last said {_duration(each['lastSaid'])} ago: {each['message']}"
            stdout.print(line, markup=False)
            continue
        since = f"for {_duration(each['age'])}, last said {_duration(each['lastSaid'])} ago"
        times = f", {each['count']} times" if each["count"] > 1 else ""
        stdout.print(f"{each['level']}{code}{where}, {since}{times}: {each['message']}", markup=False)
        if each["fix"]:
            stdout.print(f"  fix: {each['fix']}", markup=False)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _print_table(title: str, columns: dict[str, str], rows: object, first: str) -> None:
    if not isinstance(rows, list) or not rows:
        return
    table = Table(title, *columns.values(), box=None, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(str(row.get(first)), *(_shown(key, row.get(key)) for key in columns))
    stdout.print(table)


def _shown(key: str, value: object) -> str:
    if value is None or value == "":
        return "-"
    if key in ("age", "sinceProgress") and isinstance(value, int | float):
        return f"{value:.1f} s ago"
    return str(value)
