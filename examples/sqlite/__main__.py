"""A shop's stock in SQLite: `python -m examples.sqlite`.

Another program writes to the database as it likes; the query of a client stays current.
"""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from examples.flow import flow
from reference_cache.client import Client
from reference_cache.zql.query.builder import Queries
from reference_cache.zql.schema import schema, table

SHOP = schema([table("stock", {"id": "number", "name": "string", "pieces": "number"})], {})
RUNNING_LOW = Queries(SHOP).table("stock").where("pieces", "<", 10).order_by("pieces")


async def watch(shop: sqlite3.Connection, path: Path) -> None:
    async with flow("sqlite", {"path": str(path)}) as url, Client(url, SHOP) as client:
        view = client.query(RUNNING_LOW)
        await view.complete()
        view.listen(lambda rows, _: print("running low:", [(row["name"], row["pieces"]) for row in rows]))

        print("sold: 7 lamps")
        shop.execute("UPDATE stock SET pieces = pieces - 7 WHERE name = 'lamp'")
        await view.until(lambda rows: [row["name"] for row in rows] == ["chair", "lamp"])

        print("delivered: 20 chairs, and something new")
        with shop:  # one transaction, so both are seen together
            shop.execute("BEGIN")
            shop.execute("UPDATE stock SET pieces = pieces + 20 WHERE name = 'chair'")
            shop.execute("INSERT INTO stock VALUES (4, 'rug', 1)")
        await view.until(lambda rows: [row["name"] for row in rows] == ["rug", "lamp"])


def main() -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "shop.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as shop:
            shop.execute("PRAGMA journal_mode = WAL")
            shop.execute("CREATE TABLE stock (id INTEGER PRIMARY KEY, name TEXT NOT NULL, pieces INTEGER NOT NULL)")
            shop.executemany("INSERT INTO stock VALUES (?, ?, ?)", [(1, "table", 30), (2, "chair", 4), (3, "lamp", 12)])
            asyncio.run(watch(shop, path))


if __name__ == "__main__":
    main()
