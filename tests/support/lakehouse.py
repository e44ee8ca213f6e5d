"""A small lakehouse that other jobs write to: a Delta, a Parquet and an Iceberg table, and what a query makes of them.

Contract: every operation is one write of another job, as it leaves the table on disk; `rows` is what the table holds
afterwards, read from its files and not from what was asked for.
"""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from tests.support.replica import Moved, Replica, ReplicaError
from tests.support.waiting import until

Row = tuple[object, ...]
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64())])
NAMES = (None, "", "plain", "Ünïcödé 漢字 🜚", 'it\'s "quoted"', "x" * 2000)
KEYS = range(40)
Operation = Callable[[random.Random], None]


def some_rows(rng: random.Random, keys: Sequence[int]) -> pa.Table:
    """Random rows with these keys."""
    names = [rng.choice(NAMES) for _ in keys]
    amounts = [rng.choice((None, 0.0, -1.5, rng.randrange(1000) / 8)) for _ in keys]
    return pa.table([pa.array(keys, pa.int64()), pa.array(names, pa.string()), pa.array(amounts)], schema=SCHEMA)


def some_keys(rng: random.Random) -> list[int]:
    return rng.sample(KEYS, k=rng.randrange(1, 8))


def _sorted(table: pa.Table) -> list[Row]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=lambda row: repr(row[0]).zfill(8))


class DeltaOrders:
    """A Delta table with its change feed on."""

    name, columns = "orders", ["id", "name", "amount"]

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.path = str(folder / "orders")
        write_deltalake(self.path, some_rows(rng, KEYS[:20]), configuration={"delta.enableChangeDataFeed": "true"})

    @property
    def settings(self) -> dict[str, str]:
        return {"delta": self.path, "key": "id", "poll": "0.2"}

    @property
    def operations(self) -> list[Operation]:
        return [self.merge, self.overwrite, self.delete, self.update, self.restore, self.optimize, self.vacuum]

    def merge(self, rng: random.Random) -> None:
        found = some_rows(rng, some_keys(rng))
        merger = DeltaTable(self.path).merge(found, "n.id = t.id", source_alias="n", target_alias="t")
        merger.when_matched_update_all().when_not_matched_insert_all().execute()

    def overwrite(self, rng: random.Random) -> None:
        write_deltalake(self.path, some_rows(rng, sorted(some_keys(rng))), mode="overwrite")

    def delete(self, rng: random.Random) -> None:
        DeltaTable(self.path).delete(f"id % 5 = {rng.randrange(5)}")

    def update(self, rng: random.Random) -> None:
        DeltaTable(self.path).update(updates={"amount": "amount + 1"}, predicate=f"id % 3 = {rng.randrange(3)}")

    def restore(self, rng: random.Random) -> None:
        table = DeltaTable(self.path)
        table.restore(max(0, table.version() - 1))

    def optimize(self, rng: random.Random) -> None:
        DeltaTable(self.path).optimize.compact()

    def vacuum(self, rng: random.Random) -> None:
        DeltaTable(self.path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    def rows(self) -> list[Row]:
        return _sorted(DeltaTable(self.path).to_pyarrow_table().select(self.columns))


class ParquetItems:
    """A folder of Parquet files, replaced by its writer as Spark does."""

    name, columns = "items", ["id", "name", "amount"]

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.path = folder / "items"
        self.path.mkdir()
        self._files = itertools.count()
        self._write(some_rows(rng, KEYS[:20]))

    @property
    def settings(self) -> dict[str, str]:
        return {"parquet": str(self.path), "key": "id", "poll": "0.2"}

    @property
    def operations(self) -> list[Operation]:
        return [self.upsert, self.overwrite, self.delete, self.append, self.compact]

    def upsert(self, rng: random.Random) -> None:
        new = some_rows(rng, some_keys(rng))
        kept = self._table().filter(pc.invert(pc.is_in(self._table()["id"], new["id"])))
        self._replace(pa.concat_tables([kept, new]))

    def overwrite(self, rng: random.Random) -> None:
        self._replace(some_rows(rng, some_keys(rng)))

    def delete(self, rng: random.Random) -> None:
        gone = pa.array(some_keys(rng), pa.int64())
        self._replace(self._table().filter(pc.invert(pc.is_in(self._table()["id"], gone))))

    def append(self, rng: random.Random) -> None:
        known = set(self._table()["id"].to_pylist())
        if free := [key for key in KEYS if key not in known]:
            self._write(some_rows(rng, free[:3]))

    def compact(self, rng: random.Random) -> None:
        self._replace(self._table())

    def _table(self) -> pa.Table:
        return pa.concat_tables([pq.read_table(path) for path in sorted(self.path.glob("*.parquet"))])

    def _replace(self, table: pa.Table) -> None:
        """One file takes the place of all; what Spark's own writers leave meanwhile tells that it is going on."""
        old = sorted(self.path.glob("*.parquet"))
        mark = self.path / "_temporary" / "0"
        mark.mkdir(parents=True)
        (mark / "task").touch()
        self._write(table)
        for path in old:
            path.unlink()
        shutil.rmtree(mark.parent)

    def _write(self, table: pa.Table) -> None:
        staged = self.path / f".staged-{next(self._files)}"
        pq.write_table(table, staged)
        staged.rename(self.path / f"part-{next(self._files)}.parquet")

    def rows(self) -> list[Row]:
        return _sorted(self._table())


class IcebergPlaces:
    """An Iceberg table in a SQL catalog, named to the adapter by its folder."""

    name, columns = "places", ["id", "name", "amount"]

    def __init__(self, folder: Path, rng: random.Random) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        (folder / "iceberg").mkdir()
        where = folder / "iceberg"
        self._catalog = SqlCatalog("lake", uri=f"sqlite:///{where}/catalog.db", warehouse=where.as_uri())
        self._catalog.create_namespace("shop")
        self._catalog.create_table("shop.places", SCHEMA).append(some_rows(rng, KEYS[:20]))

    @property
    def _table(self) -> Any:
        return self._catalog.load_table("shop.places")

    @property
    def settings(self) -> dict[str, str]:
        return {"iceberg": str(self._table.location()), "key": "id", "poll": "0.2"}

    @property
    def operations(self) -> list[Operation]:
        return [self.append, self.delete, self.overwrite, self.replace_some]

    def append(self, rng: random.Random) -> None:
        known = {row[0] for row in self.rows()}
        if free := [key for key in KEYS if key not in known]:
            self._table.append(some_rows(rng, free[:3]))

    def delete(self, rng: random.Random) -> None:
        self._table.delete(f"id = {rng.choice(KEYS)}")

    def overwrite(self, rng: random.Random) -> None:
        self._table.overwrite(some_rows(rng, some_keys(rng)))

    def replace_some(self, rng: random.Random) -> None:
        key = rng.choice(KEYS)
        self._table.overwrite(some_rows(rng, [key]), overwrite_filter=f"id = {key}")

    def rows(self) -> list[Row]:
        return _sorted(self._table.scan().to_arrow().select(self.columns))


class JoinedQuery:
    """Orders with the item of the same id, as a query of Spark makes them."""

    name, columns = "joined", ["id", "name", "item"]
    operations: Sequence[Operation] = ()

    def __init__(self, orders: DeltaOrders, items: ParquetItems) -> None:
        self._orders, self._items = orders, items

    @property
    def settings(self) -> dict[str, str]:
        query = "SELECT o.id, o.name, upper(i.name) AS item FROM orders o LEFT JOIN items i ON i.id <=> o.id"
        return {"query": query, "key": "id", "poll": "0.2"}

    def rows(self) -> list[Row]:
        items = {row[0]: row[1] for row in self._items.rows()}
        return [(key, name, _upper(items.get(key))) for key, name, _ in self._orders.rows()]


def _upper(name: object) -> str | None:
    return name.upper() if isinstance(name, str) else None


LakeTable = DeltaOrders | ParquetItems | IcebergPlaces | JoinedQuery


class Lakehouse:
    """All of them, made with one seed."""

    def __init__(self, folder: Path, seed: int) -> None:
        rng = random.Random(seed)
        folder.mkdir()
        orders, items = DeltaOrders(folder, rng), ParquetItems(folder, rng)
        self.tables: list[LakeTable] = [orders, items, IcebergPlaces(folder, rng), JoinedQuery(orders, items)]

    @property
    def settings(self) -> dict[str, str]:
        """As `--set` takes them."""
        return {f"tables.{t.name}.{key}": value for t in self.tables for key, value in t.settings.items()}

    def rounds(self, rng: random.Random, count: int) -> list[list[Operation]]:
        """Operations in random order, each of a table's at least once if there are rounds enough."""
        orders = [[*rng.sample(list(t.operations), k=len(t.operations)) * count][:count] for t in self.tables]
        return [list(each) for each in zip(*(o for o in orders if o), strict=True)]

    def difference(self, replica: Replica) -> str:
        """What the replica has otherwise than the tables; empty if nothing."""
        return self._difference(replica, [(table, table.rows()) for table in self.tables])

    def wait_until_same(self, replica: Replica, *, seconds: float = 180) -> None:
        # Nobody writes meanwhile: the files are read once, and Spark has the processor.
        wanted = [(table, table.rows()) for table in self.tables]
        last = [""]
        moved = Moved(replica)

        def same() -> bool:
            if not moved():
                return False
            last[0] = self._difference(replica, wanted)
            return not last[0]

        try:
            until(same, "the replica to equal the lakehouse", seconds=seconds)
        except AssertionError:
            raise AssertionError(f"the replica differs: {last[0]}") from None

    @staticmethod
    def _difference(replica: Replica, expected: Sequence[tuple[LakeTable, list[Row]]]) -> str:
        for table, wanted in expected:
            try:
                found = replica.rows(table.name, table.columns)
            except ReplicaError as error:
                return f"table {table.name}: {error}"
            if found != wanted:
                odd = [row for row in (*wanted, *found) if (row in wanted) != (row in found)]
                return f"table {table.name}: {len(wanted)} rows, {len(found)} in the replica, such as {odd[:2]!r:.300}"
        return ""
