"""The document of `/statusz`, read from the log itself: no endpoint needs to run, and nothing is written."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from changesource_sdk.changelog.coordination.consumers import Consumer
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.endpoint.status import Document, describe
from changesource_sdk.errors import StateError


def status_of_directory(directory: Path) -> Document:
    """Return the status of the log in a state directory. Raises `StateError` if there is none."""
    log_store = SqliteLogStore(directory)
    layout = log_store.layout
    if not layout.log.exists() and not layout.stages.is_dir():
        raise StateError("no-state", "no change log is there", str(directory), "give the directory of serve's --state")
    return status_of_log(log_store, layout.consumers.exists())


def status_of_log(log_store: LogStore, has_subscribers: bool = True) -> Document:
    """Return the status of a log, and close its store."""
    reader = log_store.open_log()
    try:
        return describe(log_store, reader, _consumers(log_store) if has_subscribers else [])
    finally:
        reader.close()
        log_store.close()


def _consumers(log_store: LogStore) -> list[Consumer]:
    with closing(log_store.open_coordination()) as coordination:
        return coordination.consumers()
