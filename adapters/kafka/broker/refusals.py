"""Why no connection to the brokers comes about: what kafka-python keeps to its log, as an error a user can act on.

The client tries again until its time is over and then says only that. The reason of each failed attempt, a refused
login or certificate, goes to its log, as an exception; `hearing` collects those, `refusal` makes one error of them.

A broker answers a login it refuses and closes the connection in one go. When both arrive together, kafka-python drops
the answer and tells of the end alone, so a connection that ends while logging in is taken for a refused login.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from ssl import SSLError

from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError, UnsupportedSaslMechanismError

from adapters.kafka.settings import KafkaSettings
from changesource_sdk import AdapterError

FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile")
LOGIN = "correct the settings sasl_mechanism, sasl_plain_username and sasl_plain_password"
CLOSED = "socket disconnected"
"""What kafka-python says when the other side ends a connection, beside one that nobody takes."""
REMEMBERED = 20


class _Listener(logging.Handler):
    """Keeps the last exceptions that were logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.heard: deque[Exception] = deque(maxlen=REMEMBERED)

    def emit(self, record: logging.LogRecord) -> None:
        """Take the exceptions among what a line tells."""
        told = record.args if isinstance(record.args, tuple) else ()
        self.heard += [found for found in told if isinstance(found, Exception)]


@contextmanager
def hearing() -> Iterator[deque[Exception]]:
    """What goes wrong with connections during a block, as it goes wrong."""
    listener, log = _Listener(), logging.getLogger("kafka.net")
    log.addHandler(listener)
    try:
        yield listener.heard
    finally:
        log.removeHandler(listener)


def refusal(settings: KafkaSettings, heard: Iterable[Exception]) -> AdapterError | None:
    """The error for what was heard; None if it tells no more than that nobody answers."""
    told = list(heard)
    for error in reversed(told):
        if isinstance(error, SaslAuthenticationFailedError | UnsupportedSaslMechanismError):
            return login_refused(settings, error)
    for error in reversed(told):
        if isinstance(error, FileNotFoundError) and (missing := _missing_file(settings)):
            name, path = missing
            return AdapterError("bad-setting", f"there is no file {path}", name, f"correct the setting {name}")
        if isinstance(error, SSLError) or "Handshake failed" in str(error):
            return _handshake_failed(settings, str(error))
    attempts = [error for error in told if isinstance(error, KafkaConnectionError)]
    if attempts and CLOSED in str(attempts[-1]) and settings.client.get("sasl_mechanism"):
        return login_refused(settings, attempts[-1])
    return None


def login_refused(settings: KafkaSettings, error: Exception) -> AdapterError:
    """The error for a login that the brokers do not accept."""
    return AdapterError("login-refused", f"the brokers refuse the login: {error}", settings.where, LOGIN)


def _missing_file(settings: KafkaSettings) -> tuple[str, str] | None:
    named = ((name, str(settings.client.get(name) or "")) for name in FILES)
    return next(((name, path) for name, path in named if path and not Path(path).is_file()), None)


def _handshake_failed(settings: KafkaSettings, why: str) -> AdapterError:
    if "CERTIFICATE_VERIFY_FAILED" not in why:
        fix = "see that the setting security_protocol suits the port, and the settings ssl_certfile and ssl_keyfile"
        return AdapterError("tls-failed", f"no TLS connection comes about: {why}", settings.where, fix)
    fix = "let the setting ssl_cafile name a file with the authority that signed it"
    if "mismatch" in why:
        fix = "use a name in `bootstrap` that the certificate has, or --set ssl_check_hostname=false"
    message = f"the certificate of the brokers is not trusted: {why}"
    return AdapterError("certificate-refused", message, settings.where, fix)
