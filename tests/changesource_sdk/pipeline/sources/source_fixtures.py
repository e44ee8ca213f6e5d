"""Several memory stores as sources of one log, with faults that a test switches on, and a runner for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from adapters.memory import MemoryAdapter, MemoryStore
from changesource_sdk.adapter import Column, Insert, Position, Snapshot, Table, Transaction
from changesource_sdk.changelog.source_writer import table_names
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.errors import position_lost
from changesource_sdk.pipeline.compaction.local import LocalLane
from changesource_sdk.pipeline.source import SourceSpec
from changesource_sdk.pipeline.sources.lane import InlineLanes
from changesource_sdk.pipeline.sources.runner import SourcesRunner
from changesource_sdk.verifying.log_side import log_side, schema_at_head
from service_kit.backoff import Backoff
from tests.changesource_sdk.pipeline.runner_fixtures import Watched, watched


@dataclass
class Upstream:
    """A memory store and its faults: `is_down` makes every call fail, `lost` the next one of `changes`."""

    store: MemoryStore
    is_down: bool = False
    lost: bool = False
    reads: int = 0
    followed_from: list[Position] = field(default_factory=list)


UPSTREAMS: dict[str, Upstream] = {}
"""By the setting `upstream` of `SwitchedAdapter`; emptied by each test."""


class SwitchedAdapter(MemoryAdapter):
    """The memory adapter over a registered upstream."""

    def __init__(self, upstream: str) -> None:
        self.upstream = UPSTREAMS[upstream]
        super().__init__(store=self.upstream.store)

    def snapshot(self) -> Snapshot:
        self._answer()
        self.upstream.reads += 1
        return super().snapshot()

    def changes(self, after: Position) -> Iterator[Transaction]:
        self._answer()
        if self.upstream.lost:
            self.upstream.lost = False
            raise position_lost("a test says so")
        self.upstream.followed_from.append(after)
        for transaction in super().changes(after):
            self._answer()
            yield transaction

    def _answer(self) -> None:
        if self.upstream.is_down:
            raise ConnectionError("the upstream is down")


def upstream(name: str, tables: Sequence[str], rows: int = 0) -> Upstream:
    """Register a store with tables of the same form."""
    made = UPSTREAMS[name] = Upstream(MemoryStore([table(each) for each in tables]))
    for each in tables:
        insert(name, each, 0, rows)
    return made


def table(name: str) -> Table:
    return Table(name, [Column("id", int), Column("title", str)])


def insert(upstream: str, table: str, first: int, count: int = 1, title: object = "t") -> None:
    rows = [Insert(table, {"id": number, "title": title}) for number in range(first, first + count)]
    if rows:
        UPSTREAMS[upstream].store.commit(rows)


def spec(
    name: str,
    upstream: str = "",
    prefix: str = "",
    mapping: dict[str, object] | None = None,
    on_bad_value: str = "",
) -> SourceSpec:
    adapter = f"{__name__}:SwitchedAdapter"
    made = SourceSpec(adapter, {"upstream": upstream or name}, name=name, prefix=prefix, mapping=mapping or {})
    return replace(made, on_bad_value=on_bad_value)


@contextmanager
def running(log_store: LogStore, *specs: SourceSpec, spill_bytes: int = 1 << 30) -> Iterator[Watched]:
    """The sources, run in this process until the end of the block."""
    runner = SourcesRunner(
        specs,
        log_store,
        InlineLanes(),
        LocalLane(),
        backoff=lambda: Backoff(first_s=0.01, last_s=0.05),
        spill_bytes=spill_bytes,
    )
    with watched(runner, log_store) as seen:
        yield seen


def rows_in_log(log_store: LogStore) -> dict[str, set[int]]:
    """The ids of all rows by table, as a consumer has them that syncs now."""
    side = log_side(log_store, schema_at_head(log_store))
    return {name: {int(str(row["id"])) for row in rows.values()} for name, rows in side.tables.items()}


def until_rows(seen: Watched, expected: dict[str, set[int]]) -> None:
    """Wait until the log has exactly these rows."""

    def has() -> bool:
        return seen.log.state().generation > 0 and rows_in_log(seen.store) == expected

    seen.until(has, f"rows {expected}")


def stage(seen: Watched, source: str) -> dict[str, object]:
    return seen.store.reports.all().get(f"source-{source}", {})


def error_code(seen: Watched, source: str) -> object:
    error = stage(seen, source).get("error")
    return error.get("code") if isinstance(error, dict) else None


def tables_of(seen: Watched, source: str) -> list[str]:
    return list(table_names(seen.log.state().sources[source].schema))
