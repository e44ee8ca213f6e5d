"""Accounts in Postgres, read and written by a client: `python -m examples.postgres --dsn postgresql://…`.

The client transfers money by a mutator that the application's server runs in a transaction of the database. It makes
a database of its own on that server, and removes it at the end.
"""

import argparse
import asyncio
import logging
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from aiohttp import web
from psycopg.conninfo import make_conninfo

from examples.flow import flow
from examples.postgres.bank import BANK, SETUP, accounts, guess, mutators, queries
from reference_cache.app_server import zero_routes
from reference_cache.app_server.stores.postgres import PostgresStore
from reference_cache.client import Client, MutationRefused, named_query

FREE_SLOTS = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s AND NOT active"


@asynccontextmanager
async def database(server: str) -> AsyncIterator[str]:
    """A new database with two accounts, for as long as it is wanted; the connection string to it."""
    name = f"changesource_example_{secrets.token_hex(4)}"
    async with await psycopg.AsyncConnection.connect(server, autocommit=True) as admin:
        found = await (await admin.execute("SHOW wal_level")).fetchone()
        if found != ("logical",):
            raise SystemExit(f"the server has wal_level {found}; changes can be followed with wal_level=logical")
        await admin.execute(f"CREATE DATABASE {name}".encode())
        dsn = make_conninfo(server, dbname=name)
        try:
            async with await psycopg.AsyncConnection.connect(dsn) as bank:
                await bank.execute(SETUP)
            yield dsn
        finally:
            slots = "SELECT 1 FROM pg_replication_slots WHERE database = %s"
            while await (await admin.execute(slots, [name])).fetchone():
                await admin.execute(FREE_SLOTS, [name])
                await asyncio.sleep(0.1)
            await admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@asynccontextmanager
async def application(dsn: str) -> AsyncIterator[str]:
    """The server that says what queries and mutators mean; its address."""
    store = PostgresStore(dsn, BANK)
    app = web.Application()
    app.add_routes(zero_routes(queries, mutators, store))
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
        await store.close()


async def main(server: str) -> None:
    async with (
        database(server) as dsn,
        application(dsn) as app,
        flow("postgres", {"dsn": dsn}, application=app) as url,
        Client(url, BANK, mutators={"transfer": guess}) as client,
    ):
        view = client.query(named_query("accounts", accounts)())

        def show(when: str) -> None:
            print(f"{when}:", {row["owner"]: row["balance"] for row in view.result})

        await view.complete()
        show("at first")
        mutation = client.mutate.transfer({"source": "ada", "target": "bob", "amount": 30})
        show("at once, as the client guesses")
        await mutation
        show("confirmed by the database")

        mutation = client.mutate.transfer({"source": "bob", "target": "ada", "amount": 1000})
        show("another guess")
        try:
            await mutation
        except MutationRefused as refused:
            show(f"{refused.message}, so it is taken back")

        async with await psycopg.AsyncConnection.connect(dsn) as bank:
            await bank.execute("UPDATE account SET balance = balance + 5")
        await view.until(lambda rows: [row["balance"] for row in rows] == [75, 55])
        show("interest, paid in SQL by someone else")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--dsn", default=os.environ.get("DATABASE_URL"), help="a Postgres server; default: $DATABASE_URL"
    )
    given = options.parse_args()
    if not given.dsn:
        raise SystemExit("give a Postgres server with --dsn or DATABASE_URL; README.md says how to start one")
    # The application's server warns of what it refuses; here that is part of the story.
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(main(given.dsn))
