"""Listening on an address: TLS, what it means when that fails, and connections that cannot be accepted."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ssl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from service_kit.errors import CodedError

Coded = TypeVar("Coded", bound=CodedError)

OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def cannot_listen(error: OSError, where: str, kind: Callable[..., Coded], fixes: Mapping[str, str]) -> Coded:
    """The error for an address that cannot be used. `fixes` by code: port-in-use, port-forbidden, cannot-listen."""
    if error.errno == errno.EADDRINUSE:
        code, message = "port-in-use", "another process listens there"
    elif error.errno == errno.EACCES:
        code, message = "port-forbidden", "this user may not listen there"
    else:
        code, message = "cannot-listen", f"cannot listen: {error.strerror or error}"
    return kind(code, message, where, fixes[code])


def tls_context(
    cert: Path | None, key: Path | None, client_ca: Path | None = None, *, kind: Callable[..., CodedError], where: str
) -> ssl.SSLContext | None:
    """A server's TLS context, or None for plain text. Raises `kind` with `where` and the name of the file at fault.

    Client certificates are verified where they are presented, and not required: the pages for load balancers need none.
    """
    if cert is None or key is None:
        return None
    for path in (cert, key, *((client_ca,) if client_ca else ())):
        if not path.is_file():
            raise kind("bad-tls", f"no such file: {path}", where, "give PEM files that exist")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key)
    except (ssl.SSLError, OSError) as error:
        fix = "give a PEM certificate chain and the unencrypted key that belongs to it"
        raise kind("bad-tls", f"cannot use {cert} with {key}: {error}", where, fix) from None
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except (ssl.SSLError, OSError) as error:
            fix = "give a PEM file with the certificates of the authorities that sign client certificates"
            raise kind("bad-tls", f"cannot use {client_ca}: {error}", where, fix) from None
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


@contextlib.contextmanager
def accept_failures(loop: asyncio.AbstractEventLoop, on_failure: Callable[[OSError], None]) -> Iterator[None]:
    """Call `on_failure` where asyncio would log a stack trace for each connection that it has no descriptor for."""
    before = loop.get_exception_handler()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if "accept" in str(context.get("message")) and isinstance(error, OSError) and error.errno in OUT_OF_RESOURCES:
            on_failure(error)
        elif before is not None:
            before(loop, context)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)
    try:
        yield
    finally:
        # Another server on this loop may have installed its own on top of ours, which it then still needs.
        if loop.get_exception_handler() is handle:
            loop.set_exception_handler(before)
