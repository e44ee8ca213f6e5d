"""The application's server: what the client may ask for, and what it may write.

    python server.py STORE [PORT]

The store is a SQLite database, which is made if it is not there. Prints where it listens, as JSON.
"""

import json
import socket
import sqlite3
import sys
from contextlib import closing

from aiohttp import web
from pydantic import BaseModel

from reference_cache.app_server import ApplicationError, Mutators, NamedQueries, zero_routes
from reference_cache.app_server.stores.sql_transaction import SqlTransaction
from reference_cache.app_server.stores.sqlite import SqliteStore
from reference_cache.zql.query.builder import Queries, QueryBuilder
from reference_cache.zql.schema import schema, table

SCHEMA = schema([table("todo", {"id": "string", "title": "string", "done": "boolean", "created": "number"})], {})
queries, mutators = NamedQueries(SCHEMA), Mutators()


class Add(BaseModel):
    id: str
    title: str
    created: float


class SetDone(BaseModel):
    id: str
    done: bool


@queries.define("todos")
def todos() -> QueryBuilder:
    return Queries(SCHEMA).table("todo").order_by("created", "asc")


@mutators.define("todo.add")
async def add(tx: SqlTransaction, args: Add) -> None:
    if not args.title.strip():
        raise ApplicationError("Say what is to be done")
    await tx.insert("todo", {**args.model_dump(), "done": False})


@mutators.define("todo.setDone")
async def set_done(tx: SqlTransaction, args: SetDone) -> None:
    await tx.update("todo", args.model_dump())


def create(path: str) -> SqliteStore:
    """The store, with its table and the tables that confirm mutations."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute(
            "CREATE TABLE IF NOT EXISTS todo "
            "(id TEXT PRIMARY KEY, title TEXT NOT NULL, done BOOLEAN NOT NULL, created REAL NOT NULL)"
        )
    store = SqliteStore(path, SCHEMA)
    store.create_system_tables()
    return store


def serve(path: str, port: int) -> None:
    """Answer the cache's requests until a signal."""
    app = web.Application()
    app.add_routes(zero_routes(queries, mutators, create(path)))
    sock = socket.create_server(("127.0.0.1", port))
    print(json.dumps({"event": "listening", "port": sock.getsockname()[1]}), flush=True)
    web.run_app(app, sock=sock, print=None)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 4811)
