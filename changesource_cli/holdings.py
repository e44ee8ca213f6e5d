"""Row counts and digests of every stage, for `inspect --digests`: upstream, log and replicas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, TypeAlias

import typer
from rich.table import Table

from changesource_cli.adapter_choice import load_class, source_specs, with_own_folder
from changesource_cli.output import stdout
from changesource_sdk.adapter import Adapter
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.config import ServeConfig
from changesource_sdk.pipeline.adapter_factory import opened
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.source import SourceSpec
from changesource_sdk.verifying.holdings import Holding, holding
from changesource_sdk.verifying.log_side import log_side, schema_at_head
from changesource_sdk.verifying.replica_side import replica_side
from changesource_sdk.verifying.upstream_side import upstream_side

Replicas: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option("--replica", help="Replica file of a cache; may be repeated.", show_default=False),
]


@contextmanager
def upstream(source: SourceSpec) -> Iterator[Adapter]:
    """Open an adapter with its mappings, for the length of a block: the upstream as consumers see it.

    What the adapter remembers goes to a temporary folder: its own belongs to the pipeline, which may be running.
    """
    # As serve does: modules of the current directory can be imported from here on, also those of mappings.
    adapter_class = load_class(source.adapter)
    with TemporaryDirectory(prefix="changesource-") as folder:
        settings = with_own_folder(adapter_class, source.settings, Path(folder))
        with opened(replace(source, ledger="", settings=settings).factory()) as adapter:
            yield adapter


def schema_of_source(log_store: LogStore, source: SourceSpec) -> ConsumerSchema:
    """The schema at the log's head of the tables that come from this source."""
    if not source.name:
        return schema_at_head(log_store)
    with closing(log_store.open_log()) as log:
        row = log.state().sources.get(source.name)
    return ConsumerSchema.from_json(row.schema if row is not None else "")


def stages_hold(log_store: LogStore, config: ServeConfig, replicas: Sequence[Path]) -> Iterator[Holding]:
    """Read each stage in the order of the flow. The rows of only one are in memory at a time."""
    schema = schema_at_head(log_store)
    for source in source_specs(config):
        with upstream(source) as adapter:
            own = schema_of_source(log_store, source)
            yield holding(upstream_side(adapter, own, source.on_bad_value), source.name or config.adapter)
    yield holding(log_side(log_store, schema))
    for path in replicas:
        yield holding(replica_side(path, schema), str(path))


def print_holdings(holdings: Sequence[Holding]) -> None:
    """Print a line per table and stage, the stages of one table below each other."""
    table = Table("table", "stage", "at", "rows", "digest", box=None, padding=(0, 2, 0, 0))
    for name in sorted({name for each in holdings for name in each.tables}):
        for each in holdings:
            rows, digest = each.tables.get(name, ("-", "-"))
            table.add_row(name, f"{each.stage} {each.where}".strip(), each.watermark, str(rows), digest)
    stdout.print(table)
