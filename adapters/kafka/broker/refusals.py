"""Why a connection to the brokers fails: kafka-python writes the reason only to its log.

The client retries until its timeout and then reports only the timeout. The reason of each failed attempt, such as a
refused login or certificate, goes to its log as an exception. `logged_errors` collects these, `refusal` makes one error
of them.

A broker answers a refused login and closes the connection at once. When both arrive together, kafka-python drops the
answer and reports only the closed connection. So a connection that ends during the login counts as a refused login.
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
"""What kafka-python logs when the other side closes a connection, unlike a connection that nobody accepts."""
REMEMBERED = 20


class _Listener(logging.Handler):
    """Keeps the last exceptions that were logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.errors: deque[Exception] = deque(maxlen=REMEMBERED)  # the newest last; kafka-python's threads append

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the exceptions among the arguments of a log line."""
        arguments = record.args if isinstance(record.args, tuple) else ()
        self.errors += [argument for argument in arguments if isinstance(argument, Exception)]


@contextmanager
def logged_errors() -> Iterator[deque[Exception]]:
    """The errors of connections that kafka-python logs during the block; the deque fills as they come."""
    listener, log = _Listener(), logging.getLogger("kafka.net")
    log.addHandler(listener)
    try:
        yield listener.errors
    finally:
        log.removeHandler(listener)


def refusal(settings: KafkaSettings, errors: Iterable[Exception]) -> AdapterError | None:
    """The error for these logged errors; None if they only say that no broker answers."""
    logged = list(errors)
    for error in reversed(logged):
        if isinstance(error, SaslAuthenticationFailedError | UnsupportedSaslMechanismError):
            return login_refused(settings, error)
    for error in reversed(logged):
        if isinstance(error, FileNotFoundError) and (missing := _missing_file(settings)):
            name, path = missing
            return AdapterError("bad-setting", f"there is no file {path}", name, f"correct the setting {name}")
        if isinstance(error, SSLError) or "Handshake failed" in str(error):
            return _handshake_failed(settings, str(error))
    attempts = [error for error in logged if isinstance(error, KafkaConnectionError)]
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
