"""An application that counts, as a process of its own: `python -m tests.faults.cache.counting_app DATABASE PORT`.

Every mutation adds one to a counter, so the sum shows what is lost or done twice.
"""

from __future__ import annotations

import sys
from typing import Any

from aiohttp import web

from reference_cache.app_server import ApplicationError, Mutators, NamedQueries, zero_routes
from reference_cache.app_server.stores.sql_transaction import SqlTransaction
from reference_cache.app_server.stores.sqlite import SqliteStore
from reference_cache.zql.schema import schema, table

SCHEMA = schema([table("counter", {"id": "number", "n": "number"})], {})
mutators = Mutators()


@mutators.define("add")
async def add(tx: SqlTransaction) -> None:
    await tx.execute("UPDATE counter SET n = n + 1 WHERE id = 1")


@mutators.define("add and refuse")
async def add_and_refuse(tx: SqlTransaction) -> None:
    await add(tx)
    raise ApplicationError("not this time")


def main(path: str, port: int) -> None:
    """Serve until killed."""
    store: SqliteStore = SqliteStore(path, SCHEMA)
    app: Any = web.Application()
    app.add_routes(zero_routes(NamedQueries(SCHEMA), mutators, store))
    web.run_app(app, host="127.0.0.1", port=port)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
