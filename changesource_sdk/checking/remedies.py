"""For each rule what happens when it is broken, and how to fix it: used in findings and in the docs.

`effect` is what zero-cache 1.9.0 does. A table of sentences, one entry per rule of `expectations.ALL`.
"""

from __future__ import annotations

from typing import NamedTuple


class Remedy(NamedTuple):
    """Why a rule matters, and how to keep it."""

    effect: str
    fix: str


_CLOSES = "zero-cache closes the connection (1011) and reconnects, again and again."
_EXITS = "zero-cache exits (code 14) and, once restarted, requests the same again from its last commit."
_POISON = (
    "zero-cache stores and acknowledges the change, cannot apply it, exits, and fails again on every start until it is "
    "reset."
)
_NO_START = "zero-cache exits during its initial sync (code 255)."

REMEDIES: dict[str, Remedy] = {
    "handshake": Remedy(
        "Nothing can be judged on a connection whose request cannot be read.",
        "take appID and shardNum (or shardID) and optional watermarks from the query of /changes/v0/stream",
    ),
    "answers": Remedy(
        "zero-cache exits on its first connection and tries a later one again every 25 ms.",
        "accept the WebSocket at once and do slow work outside the event loop",
    ),
    "several-consumers": Remedy(
        "During a rolling deploy two caches of one shard are connected; the one cut off starts over.",
        "keep the state of a stream per connection and start each from its own lastWatermark",
    ),
    "json": Remedy(_CLOSES, "encode each message with a JSON encoder, as UTF-8"),
    "nan": Remedy(_CLOSES, "send null for NaN and Infinity (Python: json.dumps(…, allow_nan=False) finds them)"),
    "one-message": Remedy(_CLOSES, "send every message as a WebSocket message of its own"),
    "size": Remedy("zero-cache closes the connection (1009).", "keep a message, which is one row, below 100 MiB"),
    "shape": Remedy(_CLOSES, "compare the message with its form; unknown fields pass, unknown tags do not"),
    "answers-pings": Remedy(
        "zero-cache drops a connection that answers no ping for 30 to 60 s.",
        "never block the event loop: run queries in a thread or another process",
    ),
    "third-element": Remedy(
        _CLOSES + " The extra field corrupts the record it writes.",
        "put only the watermark there; everything else belongs in the second element",
    ),
    "begin-inside": Remedy(_EXITS, "end each transaction with commit or rollback before the next begin"),
    "data-outside": Remedy(_EXITS, "send begin before the first change of a transaction"),
    "commit-outside": Remedy(_EXITS, "send commit once per begin"),
    "rollback-outside": Remedy(_EXITS, "send rollback only while a transaction is open"),
    "status-inside": Remedy(
        "The status is taken for a point between transactions that does not exist.", "send status after the commit"
    ),
    "commit-watermark": Remedy(_EXITS, "decide on the watermark before begin, and repeat it in commit"),
    "whole-transaction": Remedy(
        "zero-cache waits, and discards what it has when the connection ends.",
        "begin a transaction when all of it can be sent; end one that cannot with rollback",
    ),
    "unknown-table": Remedy(_POISON, "send create-table before the first row, in the snapshot or in the stream"),
    "unknown-column": Remedy(_POISON, "send add-column before the first row that has the column"),
    "key-value": Remedy(
        "The row is stored without a key, or under a wrong one.", "give every column of rowKey in new and in key"
    ),
    "full-row": Remedy("Columns that are left out keep their old values.", "send all columns of the row as it is now"),
    "old-key": Remedy(
        "The row under the old key stays behind as a duplicate.", "put the old key columns in key when the key changed"
    ),
    "key-index": Remedy(
        "Rows are appended instead of replaced, and clients cannot sync the table.",
        "follow create-table with a unique create-index; primaryKey in the spec does nothing",
    ),
    "table-exists": Remedy(_POISON, "send drop-table before creating a table again, or leave the second one out"),
    "column-exists": Remedy(_POISON, "send add-column once; use update-column for a change of its type"),
    "indexed-column": Remedy(_POISON, "send drop-index before drop-column"),
    "backfill": Remedy(
        "A cache that reconnects before the end of a backfill never connects again.",
        "send add-column and then updates of the rows, in one transaction",
    ),
    "reserved-name": Remedy(
        "The names are zero-cache's own; the table or column clashes with them.",
        "rename it in the source, or leave it out",
    ),
    "data-type": Remedy(
        "The column's type cannot be read back from the replica.",
        "give a plain type name; an array is name[] together with elemPgTypeClass",
    ),
    "default": Remedy(
        _POISON, "give a number, true, false or 'text'::type as dflt, or none and update the rows instead"
    ),
    "index-name": Remedy(
        _POISON, "name indexes <table>_<something>: all tables and indexes of a schema share one set of names"
    ),
    "no-row-key": Remedy(
        "The replica cannot know which row is meant.", "give the table a unique index over not-null columns"
    ),
    "value-type": Remedy(
        "It is stored anyway and reaches clients as something else: 5 in a text column becomes '5.0'.",
        "convert values to the type of their column; times are milliseconds, JSON follows the mode of begin",
    ),
    "surrogate": Remedy("The text in the replica is not valid UTF-8.", "replace half surrogate pairs before sending"),
    "watermark-form": Remedy(
        "Replicas take it; clients that reconnect with it fail, much later.",
        "make watermarks as LexiVersions: base-36 digits after one digit for their number, from 01 on",
    ),
    "watermark-order": Remedy(
        "A repeated watermark closes the connection, again and again; a lower one is acknowledged and silently lost.",
        "take watermarks from a counter that is stored, and send only what is above lastWatermark",
    ),
    "status-order": Remedy(
        "It claims that the source went back.", "give status the watermark of the last commit, or a higher one"
    ),
    "same-content": Remedy(
        "The replica may hold the first form and skips the second: caches disagree for good.",
        "store transactions with their watermarks before sending them",
    ),
    "initial-status": Remedy("It is ignored.", "send status on live streams only"),
    "initial-rollback": Remedy(_NO_START, "begin an initial sync when its snapshot can be read, and close if it fails"),
    "initial-complete": Remedy(_NO_START, "end the snapshot with commit; if it cannot be read, close the connection"),
    "after-initial": Remedy(
        "What follows is lost: zero-cache closes and connects again with lastWatermark.",
        "stop after the commit and wait for the consumer to close",
    ),
    "seam": Remedy(
        "Replicas differ from the upstream, and from one another, without any error.",
        "take snapshot and position in one transaction, and keep every change after that position",
    ),
    "snapshot-resumable": Remedy(
        "zero-cache starts over, again and again.", "keep the log from the position of the snapshot on"
    ),
    "required-table": Remedy(
        _NO_START,
        "create {app}_{shard}.clients and .mutations and {app}.permissions for the app and shard of the request",
    ),
    "permissions-row": Remedy(
        "Every client connection fails.", 'insert one row {"lock": true, "permissions": null, "hash": null}'
    ),
    "ack-shape": Remedy("The source cannot know what is durable.", "send status (or ack, in the sketch dialect)"),
    "ack-order": Remedy("The source may have forgotten what is requested.", "acknowledge in the order of the stream"),
    "ack-unsent": Remedy(
        "The source takes for durable what was never sent.", "acknowledge watermarks of commits and status only"
    ),
    "tolerates-acks": Remedy(
        "zero-cache acknowledges every commit, and may repeat itself after a reconnect.",
        "read the socket all the time, take acks as cumulative, and ignore those that are not ahead",
    ),
    "resume-known": Remedy(
        "Every restart of a cache costs a whole snapshot.", "keep the log until consumers have acknowledged it"
    ),
    "resume-complete": Remedy(
        "Changes are lost at every reconnect, without any error.",
        "start strictly after lastWatermark, with the very next transaction",
    ),
    "stays-open": Remedy(
        "zero-cache reconnects every 25 ms.", "hold the connection and wait for changes; do not close when idle"
    ),
    "unknown-reset": Remedy(
        "The cache continues with data of another history.",
        "compare lastWatermark and replicaVersion with what is stored, and send reset-required if they are not there",
    ),
    "initial-watermark": Remedy(
        "A zero-cache that lost its replica keeps its change DB, from which the changes since are already purged: it "
        "comes up healthy and stays stale for good.",
        "give every initial sync a watermark above all that was ever sent to that app and shard, also when a kept "
        "snapshot serves it: `major.minor` of the newest transaction, with a minor that only grows, is always free",
    ),
    "claim-harmless": Remedy(
        "One request with a made-up lastWatermark resets every cache.",
        "answer a watermark that was never sent with reset-required on that connection, and change nothing else",
    ),
    "initial-reset": Remedy(
        "zero-cache tries once more and exits.", "answer a request without lastWatermark with a snapshot, always"
    ),
    "reset-watermark": Remedy(
        "zero-cache takes the reset for unfinished and restarts in a loop.",
        "give the snapshot after a reset a higher watermark than the consumer ever had; store the counter",
    ),
    "ack-requested": Remedy(_CLOSES, "send status instead; ack-requested is for requests with shardID"),
    "sketch-goes-on": Remedy(
        "A consumer of that dialect waits for changes where it got the snapshot.",
        "continue the stream after the commit when the request has shardID",
    ),
}
