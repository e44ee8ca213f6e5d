"""The cache's benchmark counts what it says it counts."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from benchmarks.cache.clients import Client
from benchmarks.cache.comparison import compared, percentile
from benchmarks.cache.workload import BUCKET_ROWS, Buckets
from benchmarks.endpoint.workload import Gate
from changesource_sdk.adapter import Insert
from protocol.framing import frame
from protocol.sync.handshake import parse_request

POKE = b"".join(
    frame(part)
    for part in (
        b'["pokeStart",{"pokeID":"1","baseCookie":null}]',
        b'["pokePart",{"pokeID":"1","gotQueriesPatch":[{"op":"put","hash":"h"}],"rowsPatch":['
        b'{"op":"put","tableName":"issue","value":{"id":1,"created":1}},'
        b'{"op":"put","tableName":"issue","value":{"id":2,"created":0.0}}]}]',
        b'["pokeEnd",{"pokeID":"1","cookie":"1"}]',
    )
)


@pytest.fixture
def server() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(60)
    return listener


@pytest.mark.parametrize("samples", [True, False])
def test_a_client_asks_as_the_protocol_wants_and_counts_rows_however_they_are_cut(
    server: socket.socket, samples: bool
) -> None:
    client = Client(server.getsockname()[1], 7, 3, run="r", samples=samples)
    peer, _ = server.accept()
    head = peer.recv(65536).decode().split("\r\n")
    protocol = next(line.partition(": ")[2] for line in head if line.startswith("Sec-WebSocket-Protocol"))
    request = parse_request(head[0].split(" ")[1], protocol)
    assert (request.client_group_id, request.version) == ("rg7", 51)
    client.socket.setblocking(True)
    answer = b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + POKE * 3
    for place in range(0, len(answer), 37):
        peer.sendall(answer[place : place + 37])
        client.receive()
    assert (client.rows, client.has_query, len(client.latencies)) == (6, True, 3 if samples else 0)
    peer.sendall(frame(b'["error",{"kind":"Internal"}]'))
    with pytest.raises(AssertionError, match="Internal"):
        client.receive()


def test_every_query_begins_with_a_hundred_rows_and_transactions_go_round(tmp_path: Path) -> None:
    store = Buckets(rows="1000", gate=str(tmp_path / "gate"), spread="3", size="2")
    (part,) = store.snapshot().partitions
    buckets = [row["bucket"] for row in part.rows()]
    assert {buckets.count(bucket) for bucket in set(buckets)} == {BUCKET_ROWS}
    Gate(tmp_path / "gate").release(4)
    rows = [change.row for each in store.changes(0) for change in each.changes if isinstance(change, Insert)]
    assert [row["bucket"] for row in rows[::2]] == [1, 2, 0, 1]
    assert len({row["id"] for row in rows} - set(range(1000))) == 8


def test_figures_are_compared_with_their_target() -> None:
    assert compared({"official": 10, "ours": 50}, at_least=5)["met"]
    assert not compared({"official": 10, "ours": 49}, at_least=5)["met"]
    assert percentile([float(number) for number in range(1000)], 0.99) == 990
