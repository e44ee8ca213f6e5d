"""Ten thousand clients that only listen: the cache holds them in little memory, and still tells them the news.

`IDLE_SOCKETS` sets how many there are.
"""

from __future__ import annotations

import asyncio
import os
import resource
from pathlib import Path

import pytest

from protocol.sync.handshake import encode_subprotocol
from tests.support.fakes.sync_client import sync_client, sync_url
from tests.support.fakes.tiny_source import TinySource, insert
from tests.support.peers.reference_cache import ReferenceCache

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

SOCKETS = int(os.environ.get("IDLE_SOCKETS", "10000"))
AT_ONCE = 50
BYTES_EACH = 100 * 1024
SCHEMA = {"tables": {"item": {"columns": {"id": {"type": "number"}, "name": {"type": "string"}}, "primaryKey": ["id"]}}}
INIT = {
    "desiredQueriesPatch": [{"op": "put", "hash": "items", "ast": {"table": "item", "orderBy": [["id", "asc"]]}}],
    "clientSchema": SCHEMA,
}
LETTER = encode_subprotocol(["initConnection", INIT])
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def open_client(port: int, number: int) -> Streams:
    """A socket of a group of its own that has got its first rows."""
    path = sync_url(port, f"c{number}", f"g{number}").partition(str(port))[2]
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=8192)
    lines = [f"GET {path} HTTP/1.1", "Host: x", "Upgrade: websocket", "Connection: Upgrade"]
    lines += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13"]
    lines += [f"Sec-WebSocket-Protocol: {LETTER}", "", ""]
    writer.write("\r\n".join(lines).encode())
    await hear(reader, b"gotQueriesPatch", b"pokeEnd")
    return reader, writer


async def hear(reader: asyncio.StreamReader, *texts: bytes) -> None:
    """Read on until frames have come that say these things, one after the other."""
    heard = b""
    for text in texts:
        while text not in heard:
            more = await reader.read(4096)
            assert more, "the cache closed the socket"
            heard += more
        heard = heard.partition(text)[2]


def resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:"))


async def test_ten_thousand_idle_sockets_are_held_and_poked(tmp_path: Path) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    assert most > SOCKETS + 100, "raise the limit of open files"
    with TinySource(insert(1, "one")) as source, ReferenceCache(source.url, tmp_path) as cache:
        cache.start()
        await open_client(cache.port, -1)
        before = resident(cache.process.pid)
        clients: list[Streams] = []
        for first in range(0, SOCKETS, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, SOCKETS))
            clients += await asyncio.gather(*(open_client(cache.port, number) for number in numbers))
        each = (resident(cache.process.pid) - before) / SOCKETS
        print(f"{SOCKETS} idle groups, {each / 1024:.1f} KiB each")
        assert each < BYTES_EACH
        source.commit(insert(2, "two"))
        await asyncio.gather(*(hear(reader, b'"two"') for reader, _ in clients))
        async with sync_client(sync_url(cache.port, "late", "late"), init=INIT) as late:
            await late.hear("pokeEnd")
        for _, writer in clients:
            writer.close()
