"""The Delta table of the lakehouse, and all that other jobs do to one: rows, columns, files and the table itself."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from tests.support.workloads.delta_lake import Lake
from tests.support.workloads.lakehouse_rows import KEYS, Chain, Row, free_keys, in_order, some_keys, some_rows

EXTRA = "extra"


class DeltaOrders:
    """A Delta table with its change feed on. The columns `id` and `name` stay, others come and go."""

    name = "orders"

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._lake = Lake(folder / "orders", some_rows(rng, KEYS[:20]))

    @property
    def settings(self) -> dict[str, str]:
        return {"delta": str(self._lake.path), "key": "id", "poll": "0.2"}

    @property
    def chains(self) -> list[Chain]:
        rows: list[Chain] = [(self.overwrite,), (self.delete,), (self.update,), (self.merge, self.restore)]
        files: list[Chain] = [(self.optimize,), (self.vacuum,), (self.truncate_history,)]
        columns = (self.add_column, self.widen_column, self.forbid_nulls, self.drop_column)
        return [*rows, *files, (self.concurrently,), columns, (self.rename, self.recreate)]

    @property
    def columns(self) -> list[str]:
        return [field.name for field in self._lake.table.schema().fields]

    def rows(self) -> list[Row]:
        found = pa.RecordBatchReader.from_stream(self._lake.table.scan()).read_all()
        return in_order(found.select(self.columns))

    def merge(self, rng: random.Random) -> None:
        self._lake.merge(self._some_rows(rng, some_keys(rng)))

    def overwrite(self, rng: random.Random) -> None:
        self._lake.overwrite(self._some_rows(rng, some_keys(rng)))

    def delete(self, rng: random.Random) -> None:
        self._lake.delete(f"id % 5 = {rng.randrange(5)}")

    def update(self, rng: random.Random) -> None:
        self._lake.update(f"id % 3 = {rng.randrange(3)}", amount="amount + 1")

    def restore(self, rng: random.Random) -> None:
        self._lake.table.restore(self._lake.table.version() - 1)

    def optimize(self, rng: random.Random) -> None:
        self._lake.table.optimize.compact()

    def vacuum(self, rng: random.Random) -> None:
        """The files of a version go that may not have been read."""
        self.overwrite(rng)
        self.overwrite(rng)
        self._lake.vacuum()

    def truncate_history(self, rng: random.Random) -> None:
        """Commits go that may not have been read."""
        self.merge(rng)
        self.merge(rng)
        self._lake.clean_log(before=self._lake.table.version())

    def concurrently(self, rng: random.Random) -> None:
        """Two writers at a time."""
        keys = free_keys(self.rows(), 4)
        parts = [self._some_rows(rng, keys[:2]), self._some_rows(rng, keys[2:])]
        with ThreadPoolExecutor(len(parts)) as writers:
            list(writers.map(self._lake.append, parts))

    def add_column(self, rng: random.Random) -> None:
        rows = some_rows(rng, free_keys(self.rows(), 2))
        self._lake.append(rows.append_column(EXTRA, pa.array([None, 7], pa.int32())), schema_mode="merge")

    def widen_column(self, rng: random.Random) -> None:
        self._retype(rng, pa.field(EXTRA, pa.int64()))

    def forbid_nulls(self, rng: random.Random) -> None:
        self._retype(rng, pa.field(EXTRA, pa.int64(), nullable=False))

    def drop_column(self, rng: random.Random) -> None:
        self._lake.overwrite(some_rows(rng, some_keys(rng)), schema_mode="overwrite")

    def rename(self, rng: random.Random) -> None:
        """With column mapping: no file is touched."""
        stored = self.columns
        self._lake.mapped_columns([{"amount": "total"}.get(name, name) for name in stored], stored)

    def recreate(self, rng: random.Random) -> None:
        """Dropped, and made again with other rows."""
        self._lake.drop()
        self._lake = Lake(self._lake.path, some_rows(rng, some_keys(rng)))

    def _retype(self, rng: random.Random, field: pa.Field) -> None:
        rows = some_rows(rng, some_keys(rng))
        values = pa.array([rng.randrange(1 << 40) for _ in range(len(rows))], field.type)
        self._lake.overwrite(rows.append_column(field, values), schema_mode="overwrite")

    def _some_rows(self, rng: random.Random, keys: list[int]) -> pa.Table:
        """Rows with the columns that there are now."""
        rows = some_rows(rng, keys)
        if EXTRA not in self.columns:
            return rows
        return rows.append_column(EXTRA, pa.array([rng.randrange(9) for _ in keys], pa.int32()))
