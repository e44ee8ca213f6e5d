"""A faulty link to a store's server: what it carries arrives as it was sent, or the connection is gone."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from changesource_sdk.testing.faults import Faults
from tests.support.ports import free_port


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that sends back what it gets."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def answer(connection: socket.socket) -> None:
        with connection:
            while piece := connection.recv(1000):
                connection.sendall(piece)

    threading.Thread(target=serve, daemon=True).start()
    yield int(server.getsockname()[1])
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def exchanged(port: int, messages: int) -> int:
    """How many messages came back before the connection ended."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        for number in range(messages):
            try:
                connection.sendall(b"twenty bytes exactly")
                if connection.recv(20, socket.MSG_WAITALL) != b"twenty bytes exactly":
                    return number
            except OSError:
                return number
    return messages


def test_without_faults_everything_passes(echo: int) -> None:
    with Faults(1).link("127.0.0.1", echo) as link:
        assert exchanged(link.port, 20) == 20


def test_a_connection_drops_and_the_next_is_let_through(echo: int) -> None:
    faults = Faults(2)
    with faults.link("127.0.0.1", echo, drop=1, within=6) as link:
        assert exchanged(link.port, 20) < 20
        assert exchanged(link.port, 20) == 20
    faults.settle()


def test_a_delay_loses_nothing(echo: int) -> None:
    faults = Faults(3)
    with faults.link("127.0.0.1", echo, delay=2, within=6) as link:
        assert exchanged(link.port, 20) == 20
    faults.settle()


def test_a_server_that_is_not_there_ends_the_connection() -> None:
    with Faults(4).link("127.0.0.1", free_port()) as link:
        assert exchanged(link.port, 1) == 0


def test_open_connections_can_be_cut_and_the_next_goes_to_the_new_target(echo: int) -> None:
    nowhere = free_port()
    with Faults(5).link("127.0.0.1", nowhere) as link:
        assert exchanged(link.port, 1) == 0
        link.target = ("127.0.0.1", echo)
        with socket.create_connection(("127.0.0.1", link.port), timeout=60) as connection:
            connection.sendall(b"a")
            assert connection.recv(1) == b"a"
            link.cut()
            assert connection.recv(1) == b""
        assert exchanged(link.port, 20) == 20
        assert link.opened == [echo, echo]
