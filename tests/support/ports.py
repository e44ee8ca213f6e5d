"""TCP ports for a test's servers: each given to one server only, and to no client by chance.

They lie below what the system hands out to clients, so that no outgoing connection takes one before its server starts
or while it restarts. Every worker of a run counts through a part of its own, so that no two servers are given the same.
"""

from __future__ import annotations

import itertools
import os
import random
import socket
from collections.abc import Iterator

PORTS = range(10_000, 32_000)
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))


def _rounds() -> Iterator[int]:
    """The worker's part over and over, from a random port on: another run on this machine seldom meets it."""
    part = PORTS[WORKER::WORKERS]
    return itertools.islice(itertools.cycle(part), random.randrange(len(part)), None)


_PORTS = _rounds()


def free_port() -> int:
    """A port on which nobody listens, and which nobody else in this run is given."""
    return next(port for port in _PORTS if _is_free(port))


def _is_free(port: int) -> bool:
    """Whether a server could listen there on every address, as some do."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
        return True


def is_listening(port: int) -> bool:
    """Whether somebody takes connections there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
