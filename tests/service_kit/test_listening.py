"""Listening: each failure has a code and a fix, and connections that cannot be accepted are no stack traces."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from service_kit.addresses import is_loopback
from service_kit.errors import CodedError
from service_kit.listening import accept_failures, cannot_listen

FIXES = {code: f"fix of {code}" for code in ("port-in-use", "port-forbidden", "cannot-listen")}


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.EADDRINUSE, "port-in-use"), (errno.EACCES, "port-forbidden"), (errno.EADDRNOTAVAIL, "cannot-listen")],
)
def test_each_failure_has_a_code_and_a_fix(number: int, code: str) -> None:
    error = cannot_listen(OSError(number, "why"), "host:1", CodedError, FIXES)
    assert (error.code, error.where, error.fix) == (code, "host:1", f"fix of {code}")


async def test_connections_that_cannot_be_accepted_are_reported_and_other_errors_go_on() -> None:
    loop = asyncio.get_running_loop()
    failures: list[int | None] = []
    others: list[dict[str, Any]] = []
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: others.append(context))
    no_descriptors = {"message": "socket.accept() out of system resource", "exception": OSError(errno.EMFILE, "many")}
    with accept_failures(loop, lambda error: failures.append(error.errno)):
        loop.call_exception_handler(no_descriptors)
        loop.call_exception_handler({"message": "another"})
    loop.call_exception_handler(no_descriptors)
    loop.set_exception_handler(before)
    assert failures == [errno.EMFILE]
    assert others == [{"message": "another"}, no_descriptors]


async def test_a_server_that_ends_leaves_the_reports_of_another_on_the_same_loop() -> None:
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    failures: list[OSError] = []
    first, second = accept_failures(loop, lambda error: None), accept_failures(loop, failures.append)
    with first:
        second.__enter__()
    loop.call_exception_handler({"message": "accept", "exception": OSError(errno.EMFILE, "many")})
    assert len(failures) == 1
    second.__exit__(None, None, None)
    loop.set_exception_handler(before)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "::ffff:127.0.0.1", "localhost"])
def test_loopback_addresses(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.1", "host.example", ""])
def test_addresses_that_others_can_reach(address: str) -> None:
    assert not is_loopback(address)
