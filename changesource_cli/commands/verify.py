"""`changesource verify`: whether upstream, log and replicas have the same rows, by digests per table and by key."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from changesource_cli.adapter_choice import chosen_sources
from changesource_cli.commands import serve
from changesource_cli.holdings import Replicas, schema_of_source, upstream
from changesource_cli.output import ExitCode, print_json, reported, stdout
from changesource_sdk import config as configuration
from changesource_sdk.changelog.open import open_existing
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.config import ServeConfig
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.verifying.log_side import log_side, schema_at_head
from changesource_sdk.verifying.replica_side import replica_side
from changesource_sdk.verifying.sides import RowDifference, Side, TableVerdict, compare
from changesource_sdk.verifying.upstream_side import compare_with_log

EPILOG = "\n\n".join(
    (
        "Options not given here come from the TOML file and from CHANGESOURCE_* variables, as for serve. Exit code 1 "
        "if anything differs.",
        "Examples:",
        "changesource verify --state ./changesource-state",
        "changesource verify --state ./changesource-state --replica /var/zero/replica.db",
        "changesource verify sqlite --set path=app.db --state ./changesource-state --json",
    )
)
PAUSE_SECONDS = 0.5
"""Between two comparisons of a changing upstream with the log."""
SHOWN = 20
"""Differences per table that are printed; `--json` has all."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two stages, compared; `at` is the replica's file where the second stage is a replica."""

    expected: Side
    actual: Side
    verdicts: list[TableVerdict]
    at: str = ""

    @property
    def is_same(self) -> bool:
        return all(verdict.is_same for verdict in self.verdicts)


def verify(
    adapter: Annotated[
        str | None, typer.Argument(help="Adapter of the upstream, to compare it with the log.", show_default=False)
    ] = None,
    pairs: serve.Pairs = None,
    source: Annotated[
        str | None, typer.Option(help="Compare this one of the [sources] only.", show_default=False)
    ] = None,
    replica: Replicas = None,
    state: Annotated[Path | None, serve.flag("state")] = None,
    log: Annotated[str | None, serve.flag("log")] = None,
    log_schema: Annotated[str | None, serve.flag("log_schema")] = None,
    spool: Annotated[str | None, serve.flag("spool")] = None,
    mappings: Annotated[str | None, serve.flag("mappings")] = None,
    config: Annotated[Path | None, typer.Option(envvar=serve.CONFIG_VARIABLE, help="TOML file, as for serve.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of tables.")] = False,
) -> None:
    """Compare store, log and replicas: a digest per table at one watermark, and every difference by its key."""
    with reported(as_json=as_json):
        flags: dict[str, object] = {"adapter": adapter, "state": state, "log": log, "log_schema": log_schema}
        flags |= {"spool": spool, "mappings": mappings, "settings": configuration.parse_pairs(pairs or [])}
        effective = serve.effective_config(config, flags).config
        log_store = open_existing(effective.state, effective.log, effective.log_schema, effective.spool)
        try:
            schema = schema_at_head(log_store)
            comparisons = list(_comparisons(effective, log_store, schema, replica or [], source))
            head = log_side(log_store, schema) if not comparisons else None
        finally:
            log_store.close()
        _print_all(comparisons, head, as_json=as_json)
        if not all(comparison.is_same for comparison in comparisons):
            raise typer.Exit(ExitCode.FAILURE)


def _pause() -> None:
    time.sleep(PAUSE_SECONDS)


def _comparisons(
    config: ServeConfig, log_store: LogStore, schema: ConsumerSchema, replicas: list[Path], source: str | None
) -> Iterator[Comparison]:
    for spec in chosen_sources(config, source):
        own = schema_of_source(log_store, spec)
        with upstream(spec) as adapter:
            compared = compare_with_log(adapter, log_store, own, _pause, on_bad_value=spec.on_bad_value)
        expected, actual, verdicts = compared
        name = f"{expected.name} {spec.name}".rstrip()
        yield Comparison(dataclasses.replace(expected, name=name), actual, verdicts)
    for path in replicas:
        actual = replica_side(path, schema)
        expected = log_side(log_store, schema, actual.watermark)
        yield Comparison(expected, actual, compare(expected, actual), str(path))


def _print_all(comparisons: list[Comparison], head: Side | None, *, as_json: bool) -> None:
    """Print the comparisons; `head` is the log's content, printed if there was nothing to compare it with."""
    if head is not None:
        comparisons = [Comparison(head, head, compare(head, head))]
    if as_json:
        print_json([_document(comparison) for comparison in comparisons])
        return
    for comparison in comparisons:
        _print(comparison)


def _document(comparison: Comparison) -> dict[str, object]:
    expected, actual = comparison.expected, comparison.actual
    return {
        "stages": {side.name: side.watermark for side in (expected, actual)},
        "replica": comparison.at or None,
        "same": comparison.is_same,
        "leftOut": expected.left_out,
        "tables": {
            verdict.table: {
                "same": verdict.is_same,
                "rows": {expected.name: verdict.expected_rows, actual.name: verdict.found_rows},
                "digests": {expected.name: verdict.expected_digest, actual.name: verdict.found_digest},
                "differences": [difference.as_json() for difference in verdict.differences],
            }
            for verdict in comparison.verdicts
        },
    }


def _print(comparison: Comparison) -> None:
    expected, actual = comparison.expected, comparison.actual
    replica = f" ({comparison.at})" if comparison.at else ""
    if expected is actual:
        stdout.print(f"log at {expected.watermark}", markup=False)
    else:
        sides = " and ".join(f"{side.name} at {side.watermark}" for side in (expected, actual))
        stdout.print(f"{sides}{replica}: {'the same' if comparison.is_same else 'not the same'}", markup=False)
    if expected.left_out:
        line = f"{expected.left_out} rows of the {expected.name} are not compared: no consumer can hold them"
        stdout.print(f"{line} (changesource inspect lists dead letters)", markup=False)
    table = Table("table", "rows", "digest", "", box=None, padding=(0, 2, 0, 0))
    for verdict in comparison.verdicts:
        table.add_row(*_cells(verdict))
    stdout.print(table)
    for verdict in comparison.verdicts:
        for difference in verdict.differences[:SHOWN]:
            stdout.print(_sentence(difference, expected, actual), markup=False)
        if len(verdict.differences) > SHOWN:
            stdout.print(f"{verdict.table}: {len(verdict.differences) - SHOWN} more; --json has them all", markup=False)


def _cells(verdict: TableVerdict) -> tuple[str, str, str, str]:
    if verdict.is_same:
        return verdict.table, str(verdict.expected_rows), verdict.expected_digest, "same"
    rows = f"{verdict.expected_rows}, {verdict.found_rows}"
    return verdict.table, rows, f"{verdict.expected_digest or '-'}, {verdict.found_digest or '-'}", "differs"


def _sentence(difference: RowDifference, expected: Side, actual: Side) -> str:
    row = f"{difference.table} {', '.join(map(repr, difference.key))}"
    if not difference.column:
        return f"{row}: only in the {difference.there}"
    values = f"{difference.expected!r} in the {expected.name}, {difference.actual!r} in the {actual.name}"
    return f"{row}: {difference.column} is {values}"
