"""Customers in one store, orders in another, one query over both: `python -m examples.many_stores`.

Two SQLite files stand for two stores that know nothing of each other; any adapters will do.
"""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from examples.flow import INLINE, flow
from reference_cache.client import Client
from reference_cache.zql.query.builder import Queries
from reference_cache.zql.schema import hop, schema, table

CONFIG = """
[sources.crm]
adapter = "sqlite"
set = {{ path = "{folder}/crm.db" }}

[sources.shop]
adapter = "sqlite"
set = {{ path = "{folder}/shop.db" }}
"""
STORES = schema(
    [
        table("customer", {"id": "number", "name": "string"}),
        table("purchase", {"id": "number", "customer": "number", "item": "string"}),
    ],
    {"customer": {"purchases": hop("id", "purchase", "customer")}},
)
CUSTOMERS = Queries(STORES).table("customer").related("purchases").order_by("id")


def shown(rows: object) -> list[tuple[str, list[str]]]:
    return [(row["name"], [each["item"] for each in row["purchases"]]) for row in rows]  # type: ignore[attr-defined]


async def watch(crm: sqlite3.Connection, shop: sqlite3.Connection, folder: Path) -> None:
    config = folder / "changesource.toml"
    config.write_text(CONFIG.format(folder=folder))
    async with flow("", {}, "--config", str(config), *INLINE) as url, Client(url, STORES) as client:
        view = client.query(CUSTOMERS)
        await view.complete()
        view.listen(lambda rows, _: print("customers:", shown(rows)))

        print("the shop sells a lamp")
        shop.execute("INSERT INTO purchase VALUES (2, 1, 'lamp')")
        await view.until(lambda rows: shown(rows) == [("Ada", ["chair", "lamp"])])

        print("the CRM has a new customer")
        crm.execute("INSERT INTO customer VALUES (2, 'Grace')")
        await view.until(lambda rows: shown(rows) == [("Ada", ["chair", "lamp"]), ("Grace", [])])


def opened(path: Path, table_definition: str, row: tuple[object, ...]) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"CREATE TABLE {table_definition}")
    connection.execute(f"INSERT INTO {table_definition.split()[0]} VALUES ({', '.join('?' * len(row))})", row)
    return connection


def main() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        with (
            closing(opened(folder / "crm.db", "customer (id INTEGER PRIMARY KEY, name TEXT)", (1, "Ada"))) as crm,
            closing(
                opened(
                    folder / "shop.db",
                    "purchase (id INTEGER PRIMARY KEY, customer INTEGER, item TEXT)",
                    (1, 1, "chair"),
                )
            ) as shop,
        ):
            asyncio.run(watch(crm, shop, folder))


if __name__ == "__main__":
    main()
