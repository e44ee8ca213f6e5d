"""Free TCP ports on the loopback address."""

from __future__ import annotations

import random
import socket

KEPT_PORTS = range(20_000, 32_000)
"""Below what systems hand out to clients by default, so that nobody gets one while its server restarts."""


def free_port() -> int:
    """A port nobody listens on now, of the range the system hands out."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def kept_port() -> int:
    """A port nobody listens on now, that no client is given by chance: for a server that comes back on its port."""
    while is_listening(port := random.choice(KEPT_PORTS)):
        continue
    return port


def is_listening(port: int) -> bool:
    """Whether somebody takes connections there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
