"""The same rows behind any kind of source, so that one test runs on all of them."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from reference_cache.ivm.memory_table import MemoryTable
from reference_cache.ivm.source import Expired, Source
from reference_cache.query.cost import CostModel
from reference_cache.query.schema import Schema, TableSchema

SourceKind = Literal["memory", "sqlite"]


class Tables:
    """The tables of a schema, filled, in one kind of store."""

    def __init__(
        self,
        schema: Schema,
        rows: Mapping[str, Iterable[Mapping[str, Any]]],
        kind: SourceKind,
        *,
        expired: Expired | None = None,
    ) -> None:
        self._rows = {name: [table.row(row) for row in rows.get(name, ())] for name, table in schema.tables.items()}
        self._expired = expired

    def open_source(self, table: TableSchema) -> Source:
        return Source(MemoryTable(table, self._rows[table.name]), expired=self._expired)

    def cost_model(self) -> CostModel:
        raise NotImplementedError
