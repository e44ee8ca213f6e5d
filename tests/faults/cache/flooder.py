"""A client that sends as much as it can of one kind, from a process of its own, until it is ended.

python -m tests.faults.cache.flooder PORT KIND
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.support.fakes.sync_client import sync_client, sync_url

COLUMNS = {"id": {"type": "number"}, "name": {"type": "string"}}
SCHEMA = {"tables": {"item": {"columns": COLUMNS, "primaryKey": ["id"]}}}
INIT: dict[str, Any] = {"desiredQueriesPatch": [], "clientSchema": SCHEMA}
SOCKETS = 8


def pushes(group: str, client: str) -> Iterator[list[Any]]:
    """Mutations of a megabyte each."""
    for number in itertools.count(1):
        mutation = {"type": "custom", "id": number, "clientID": client, "name": "m", "args": ["x" * 1_000_000]}
        body = {"clientGroupID": group, "mutations": [{**mutation, "timestamp": 1}]}
        yield ["push", {**body, "pushVersion": 1, "timestamp": 1, "requestID": str(number)}]


def acknowledgements(group: str, client: str) -> Iterator[list[Any]]:
    for number in itertools.count(1):
        yield ["ackMutationResponses", {"clientID": f"{client}{number % 5000}", "id": number}]


def pings(group: str, client: str) -> Iterator[list[Any]]:
    return itertools.repeat(["ping", {}])


def queries(group: str, client: str) -> Iterator[list[Any]]:
    """New queries with long arguments, each given up at once."""
    for number in itertools.count(1):
        put = {"op": "put", "hash": f"h{number}", "name": "none", "args": ["x" * 10_000, number], "ttl": 0}
        yield ["changeDesiredQueries", {"desiredQueriesPatch": [put, {"op": "del", "hash": f"h{number - 1}"}]}]


KINDS = {each.__name__: each for each in (pushes, acknowledgements, pings, queries)}


async def flood(port: int, kind: str, number: int) -> None:
    for attempt in itertools.count():
        group, client = f"flood{number}-{attempt}", f"c{number}-{attempt}"
        with suppress(ConnectionClosed, InvalidHandshake, OSError):
            async with sync_client(sync_url(port, client, group), init=INIT) as sender:
                await sender.hear("pokeEnd")
                reading = asyncio.create_task(_read(sender.socket))
                for message in KINDS[kind](group, client):
                    await sender.socket.send(json.dumps(message))
                    await asyncio.sleep(0)
                reading.cancel()
        await asyncio.sleep(0.05)


async def _read(connection: Any) -> None:
    with suppress(ConnectionClosed):
        while True:
            await connection.recv()


async def silent_sockets(port: int) -> None:
    """Sockets that never say what they want."""
    held = []
    while True:
        with suppress(OSError):
            comer = socket.create_connection(("127.0.0.1", port), 1)
            held.append(comer)
        if len(held) > 900:
            held.pop(0).close()
        await asyncio.sleep(0.001)


async def main(port: int, kind: str) -> None:
    print("flooding", flush=True)
    if kind == "sockets":
        await silent_sockets(port)
    await asyncio.gather(*(flood(port, kind, number) for number in range(SOCKETS)))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
