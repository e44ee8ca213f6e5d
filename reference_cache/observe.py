"""Structured log events of the cache, one per line, under the logger every part of the project shares."""

from __future__ import annotations

import logging
import secrets


def logger(part: str) -> logging.Logger:
    return logging.getLogger(f"changesource.cache.{part}")


def event(log: logging.Logger, level: int, what: str, **fields: object) -> None:
    """Log one event with its fields; None fields are left out."""
    if log.isEnabledFor(level):
        log.log(level, what, extra={"fields": {k: v for k, v in fields.items() if v is not None}})


def unexpected(log: logging.Logger, what: str, error: BaseException, **fields: object) -> str:
    """Log an exception nobody expected, with its trace and a new id; the text for a client names the id alone."""
    error_id = secrets.token_hex(6)
    given = {name: value for name, value in fields.items() if value is not None}
    log.error(what, exc_info=error, extra={"fields": {"error_id": error_id, **given}})
    return f"Internal error; the server's log has it under error id {error_id}"
