"""A changed mapping calls for a new snapshot: consumers hold rows that the former one made.

The state directory remembers the fingerprint of the mappings in use. When a pipeline starts with others, it first asks
for a snapshot above the log's head and then remembers the new ones: killed in between, it asks once more.
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
    """Ask for a new snapshot if the log was made with other mappings."""
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
