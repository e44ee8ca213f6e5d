"""Requests a new snapshot when the mappings have changed, because consumers have rows of the former ones.

The state directory has the fingerprint of the mappings in use (`mapping.json`). A pipeline that starts with others
first requests a snapshot above the log's head and then writes the new fingerprint. A kill in between makes it request
the snapshot a second time, which is harmless.
"""

from __future__ import annotations

from changesource_sdk.changelog.files.atomic_json import read_json, write_json
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.errors import CorruptLog
from changesource_sdk.observe.warnings import NEW_SNAPSHOT, warn
from changesource_sdk.pipeline.mapping.declare import Mappings, fingerprint
from protocol.watermark import EMPTY
from service_kit.logs import logger

_log = logger("runner")
_FILE = "mapping.json"


def renew_if_changed(log_store: LogStore, mappings: Mappings) -> None:
    """Request a new snapshot if the log was made with other mappings. Called once, before the pipeline starts."""
    path = log_store.layout.create().root / _FILE
    remembered = (read_json(path) or {}).get("fingerprint", "")
    current = fingerprint(mappings)
    if remembered == current:
        return
    head = _head(log_store)
    if head != EMPTY:
        warn(_log, NEW_SNAPSHOT, "mappings", "a new snapshot is taken", reason="the mappings changed")
        log_store.requests.ask_snapshot(head, "the mappings changed")
    write_json(path, {"fingerprint": current})


def _head(log_store: LogStore) -> str:
    reader = log_store.open_log()
    try:
        return reader.state().head
    except CorruptLog:
        # A damaged log is replaced by a new snapshot anyway.
        return EMPTY
    finally:
        reader.close()
