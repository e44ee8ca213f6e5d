"""The document of `/statusz`, read from the log itself: no endpoint needs to run, and nothing is written."""

from __future__ import annotations

from pathlib import Path

from changesource_sdk.changelog.sqlite.store import SqliteStore
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.changelog.subscribers import Subscriber
from changesource_sdk.endpoint.status import Document, describe
from changesource_sdk.errors import StateError


def status_of_directory(directory: Path) -> Document:
    """Return the status of the log in a state directory. Raises `StateError` if there is none."""
    store = SqliteStore(directory)
    layout = store.layout
    if not layout.log.exists() and not layout.stages.is_dir():
        raise StateError("no-state", "no change log is there", str(directory), "give the directory of serve's --state")
    return status_of_log(store, layout.subscribers.exists())


def status_of_log(log_store: LogStore, has_subscribers: bool = True) -> Document:
    """Return the status of a log, and close its store."""
    reader = log_store.open_reader()
    try:
        return describe(log_store, reader, _subscribers(log_store) if has_subscribers else [])
    finally:
        reader.close()
        log_store.close()


def _subscribers(log_store: LogStore) -> list[Subscriber]:
    subscribers = log_store.open_subscribers()
    try:
        return subscribers.all()
    finally:
        subscribers.close()
