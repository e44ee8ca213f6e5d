"""Random series of writes to a Delta table, read with restarts in between: its rows and columns arrive each time."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from adapters.spark_tables.delta import feed as delta_feed
from tests.adapters.spark_tables.delta.test_feed import settings
from tests.adapters.spark_tables.follower import Follower
from tests.support.workloads.delta_lake import Lake, people

STEPS = 25
SEEDS = range(3)


class Writer:
    """Writes to a table, one random operation after the other."""

    def __init__(self, lake: Lake, rng: random.Random) -> None:
        self.lake = lake
        self.rng = rng
        self.next_id = 1000

    def write(self) -> str:
        """Do something; what it was."""
        operations = [self.append, self.update, self.delete, self.merge, self.overwrite, self.rekey, self.restore]
        operation = self.rng.choice([*operations, self.optimize, self.vacuum_nothing, self.add_column])
        operation()
        return operation.__name__

    def rows(self, ids: list[int]) -> pa.Table:
        """Rows with all columns that the table has now."""
        made = people(*((number, self.rng.choice([None, "", "x", "ü"])) for number in ids))
        for field in pa.schema(self.lake.table.schema().to_arrow()):
            if field.name not in made.column_names:
                values = [self.rng.choice([None, self.rng.randrange(9)]) for _ in ids]
                made = made.append_column(field.name, pa.array(values, pa.int32()))
        return made

    def some(self) -> list[int]:
        found = [row["id"] for row in self.lake.rows()]
        return [number for number in found if isinstance(number, int) and self.rng.random() < 0.3]

    def new(self) -> list[int]:
        self.next_id += 3
        return list(range(self.next_id - 3, self.next_id))

    def append(self) -> None:
        self.lake.append(self.rows(self.new()))

    def update(self) -> None:
        self.lake.update(f"id % 3 = {self.rng.randrange(3)}", name="concat(coalesce(name, ''), 'u')")

    def delete(self) -> None:
        self.lake.delete(f"id % 5 = {self.rng.randrange(5)}")

    def merge(self) -> None:
        self.lake.merge(self.rows([*self.some(), *self.new()]))

    def overwrite(self) -> None:
        self.lake.overwrite(self.rows([*self.some(), *self.new()]))

    def rekey(self) -> None:
        self.lake.update(f"id % 4 = {self.rng.randrange(4)}", id="id + 1000000")

    def restore(self) -> None:
        if (version := self.lake.table.version()) > 1:
            self.lake.table.restore(version - 1)

    def optimize(self) -> None:
        self.lake.table.optimize.compact()

    def vacuum_nothing(self) -> None:
        self.lake.table.vacuum(dry_run=False)

    def add_column(self) -> None:
        name = f"extra{len(self.lake.table.schema().fields)}"
        rows = self.rows(self.new())
        self.lake.append(rows.append_column(name, pa.array([1, None, 3], pa.int32())), schema_mode="merge")


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_and_columns_follow_every_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(delta_feed, "MOST_HELD", rng.choice([5, 50_000]))
    lake = Lake(tmp_path / "people", people(*((number, str(number)) for number in range(12))))
    writer, follower, done = Writer(lake, rng), Follower(settings(lake)), []
    for _ in range(STEPS):
        done += [writer.write() for _ in range(rng.randrange(1, 3))]
        if rng.random() < 0.3:
            follower.restart()
        if rng.random() < 0.2:
            for transaction in follower.adapter.changes(follower.position):
                follower.take(transaction)
                break
            continue
        follower.look()
        assert follower.rows("people") == lake.rows(), f"seed {seed}, after {done}"
    follower.look()
    assert follower.rows("people") == lake.rows(), f"seed {seed}, after {done}"
    assert list(follower.tables["people"].columns) == [field.name for field in lake.table.schema().fields]
