"""Structured log events of the cache, one per line, under the logger every part of the project shares."""

from __future__ import annotations

import logging


def logger(part: str) -> logging.Logger:
    return logging.getLogger(f"changesource.cache.{part}")


def event(log: logging.Logger, level: int, what: str, **fields: object) -> None:
    """Log one event with its fields; None fields are left out."""
    if log.isEnabledFor(level):
        log.log(level, what, extra={"fields": {k: v for k, v in fields.items() if v is not None}})
