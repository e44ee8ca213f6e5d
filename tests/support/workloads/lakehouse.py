"""A small lakehouse that other jobs write to: a Delta, a Parquet and an Iceberg table, and what a query makes of them.

Contract: every operation is one write of another job, as it leaves the table on disk; `rows` is what the table holds
afterwards, read from its files and not from what was asked for.
"""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.support.peers.replica import Replica, ReplicaError
from tests.support.waiting import until
from tests.support.workloads.lakehouse_delta import DeltaOrders
from tests.support.workloads.lakehouse_rows import (
    KEYS,
    SCHEMA,
    Chain,
    Operation,
    Row,
    free_keys,
    in_order,
    some_keys,
    some_rows,
)


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
    def chains(self) -> list[Chain]:
        return [(self.upsert,), (self.overwrite,), (self.delete,), (self.append, self.compact)]

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
        self._write(some_rows(rng, free_keys(self.rows(), 3)))

    def compact(self, rng: random.Random) -> None:
        self._replace(self._table())

    def append_row(self, key: object, name: str) -> None:
        """A row of a key that may be there already."""
        odd = {"id": [key], "name": [name], "amount": [None]}
        self._replace(pa.concat_tables([self._table(), pa.table(odd, schema=self._table().schema)]))

    def drop_last_row(self, rng: random.Random) -> None:
        table = self._table()
        self._replace(table.slice(0, table.num_rows - 1))

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
        return in_order(self._table())


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
    def chains(self) -> list[Chain]:
        return [(self.append,), (self.delete,), (self.overwrite,), (self.replace_some,)]

    def append(self, rng: random.Random) -> None:
        self._table.append(some_rows(rng, free_keys(self.rows(), 3)))

    def delete(self, rng: random.Random) -> None:
        self._table.delete(f"id = {rng.choice(self.rows())[0]}")

    def overwrite(self, rng: random.Random) -> None:
        self._table.overwrite(some_rows(rng, some_keys(rng)))

    def replace_some(self, rng: random.Random) -> None:
        key = rng.choice(KEYS)
        self._table.overwrite(some_rows(rng, [key]), overwrite_filter=f"id = {key}")

    def rows(self) -> list[Row]:
        return in_order(self._table.scan().to_arrow().select(self.columns))


class JoinedQuery:
    """Orders with the item of the same id, as a query of Spark makes them."""

    name, columns = "joined", ["id", "name", "item"]
    chains: Sequence[Chain] = ()

    def __init__(self, orders: DeltaOrders, items: ParquetItems) -> None:
        self._orders, self._items = orders, items

    @property
    def settings(self) -> dict[str, str]:
        query = "SELECT o.id, o.name, upper(i.name) AS item FROM orders o LEFT JOIN items i ON i.id <=> o.id"
        return {"query": query, "key": "id", "poll": "0.2"}

    def rows(self) -> list[Row]:
        items = {row[0]: row[1] for row in self._items.rows()}
        return [(key, name, _upper(items.get(key))) for key, name, *_ in self._orders.rows()]


def _upper(name: object) -> str | None:
    return name.upper() if isinstance(name, str) else None


class WatchedTable(Protocol):
    """A table as it is compared: `chains` are the writes that can be done to it."""

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> Sequence[str]: ...

    @property
    def settings(self) -> Mapping[str, str]: ...

    @property
    def chains(self) -> Sequence[Chain]: ...

    def rows(self) -> list[Row]: ...


class WatchedTables:
    """Tables and what a replica has of them. Invariant: `_wanted` is what they held when they were last `read`."""

    def __init__(self, tables: Sequence[WatchedTable]) -> None:
        self.tables = tables
        self._wanted: dict[str, tuple[list[str], list[Row]]] = {}
        self.read()

    @property
    def settings(self) -> dict[str, str]:
        """As `--set` takes them."""
        return {f"tables.{t.name}.{key}": value for t in self.tables for key, value in t.settings.items()}

    def series(self, rng: random.Random) -> list[Operation]:
        """Every operation of every table once, in random order."""
        chains = [chain for table in self.tables for chain in table.chains]
        return [operation for chain in rng.sample(chains, k=len(chains)) for operation in chain]

    def write(self, operation: Operation, rng: random.Random) -> None:
        """One write, and what the tables hold after it."""
        print(f"{operation.__qualname__}", flush=True)
        operation(rng)
        self.read()

    def read(self) -> None:
        """Look at the tables, once: a replica is compared with them many times."""
        self._wanted = {table.name: (list(table.columns), table.rows()) for table in self.tables}

    def difference(self, replica: Replica) -> str:
        """What the replica has otherwise than the tables; empty if nothing."""
        for name, (columns, wanted) in self._wanted.items():
            try:
                found, has = replica.rows(name, columns), set(replica.columns(name))
            except ReplicaError as error:
                return f"table {name}: {error}"
            if has != set(columns):
                return f"table {name}: columns {columns}, in the replica {sorted(has)}"
            if found != wanted:
                odd = [row for row in (*wanted, *found) if (row in wanted) != (row in found)]
                return f"table {name}: {len(wanted)} rows, {len(found)} in the replica, such as {odd[:2]!r:.300}"
        return ""

    def wait_until_same(self, replica: Replica, *, seconds: float = 180) -> None:
        """Compare whenever the replica has moved."""
        watermark, last = "", "it was not read"

        def same() -> bool:
            nonlocal watermark, last
            if (now := replica.watermark()) != watermark:
                watermark, last = now, self.difference(replica)
            return not last

        try:
            until(same, "the replica to equal the tables", seconds=seconds)
        except AssertionError:
            raise AssertionError(f"the replica differs: {last}") from None


class Lakehouse(WatchedTables):
    """All of them, made with one seed."""

    def __init__(self, folder: Path, seed: int) -> None:
        rng = random.Random(seed)
        folder.mkdir()
        orders, items = DeltaOrders(folder, rng), ParquetItems(folder, rng)
        super().__init__([orders, items, IcebergPlaces(folder, rng), JoinedQuery(orders, items)])
