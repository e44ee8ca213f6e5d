"""Free TCP ports on the loopback address."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A port nobody listens on now, of the range the system hands out."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_listening(port: int) -> bool:
    """Whether somebody takes connections there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
