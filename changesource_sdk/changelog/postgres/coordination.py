"""What travels beside a log kept in Postgres: acknowledgements, requests and reports, shared by all hosts."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.log import LogWriter
from changesource_sdk.changelog.offers import record
from changesource_sdk.changelog.postgres.connection import Connection, LogAddress, Session
from changesource_sdk.changelog.reports import FileReports, Report, newest
from changesource_sdk.changelog.spool.remote import RemoteSpool
from changesource_sdk.changelog.store import SnapshotRequest
from changesource_sdk.changelog.subscribers import Subscriber, SubscriberKey, next_version
from changesource_sdk.errors import ChangesourceError, SnapshotGone
from protocol.watermark import EMPTY, is_valid

REPORT_EVERY_S = 1.0
_TRY_AGAIN_S = 5.0

_ACKNOWLEDGE = """INSERT INTO subscribers AS known VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (app_id, shard, replica_version) DO UPDATE
SET acknowledged = greatest(known.acknowledged, excluded.acknowledged),
  seen_ms = greatest(known.seen_ms, excluded.seen_ms)"""
_SUBSCRIBERS = "SELECT app_id, shard, replica_version, acknowledged, seen_ms FROM subscribers"
_ASK = """INSERT INTO requests AS pending VALUES ('snapshot', %s, %s) ON CONFLICT (kind) DO UPDATE
SET watermark = excluded.watermark, reason = excluded.reason WHERE pending.watermark < excluded.watermark"""
_REPORT = "INSERT INTO reports VALUES (%s, %s) ON CONFLICT (stage) DO UPDATE SET report = excluded.report"
_OFFER = """INSERT INTO requests VALUES ('offer', %s, %s) ON CONFLICT (kind) DO UPDATE
SET watermark = excluded.watermark, reason = excluded.reason"""
_PRUNE = """INSERT INTO requests VALUES ('prune', %s, '') ON CONFLICT (kind) DO UPDATE
SET watermark = excluded.watermark"""


class PostgresSubscribers:
    """`Subscribers` in the log's database; every endpoint sees the acknowledgements that any of them received."""

    def __init__(self, address: LogAddress) -> None:
        self._session = Session(address)

    def issue(self, app_id: str, shard: int, head: str, held: str, now_ms: float) -> str:
        """A new replica version, committed; other endpoints wait meanwhile."""

        def take(connection: Connection) -> str:
            with connection.transaction():
                connection.execute("LOCK TABLE subscribers IN SHARE ROW EXCLUSIVE MODE")
                row = connection.execute("SELECT max(replica_version) FROM subscribers").fetchone()
                version = next_version(head, (row and row[0]) or "", int(now_ms * 1000))
                connection.execute(_ACKNOWLEDGE, (app_id, shard, version, held, now_ms))
            return version

        return self._session.run(take)

    def acknowledge(self, key: SubscriberKey, watermark: str, now_ms: float) -> None:
        """The subscriber has everything up to and including `watermark`."""
        self._session.rows(_ACKNOWLEDGE, (key.app_id, key.shard, key.replica_version, watermark, now_ms))

    def all(self) -> list[Subscriber]:
        """Every subscriber known, in key order."""
        return _subscribers(self._session.rows(f"{_SUBSCRIBERS} ORDER BY 1, 2, 3"))

    def of(self, app_id: str, shard: int) -> list[Subscriber]:
        """The subscribers of one app and shard, in key order."""
        query = f"{_SUBSCRIBERS} WHERE app_id = %s AND shard = %s ORDER BY 3"
        return _subscribers(self._session.rows(query, (app_id, shard)))

    def forget(self, key: SubscriberKey) -> None:
        """The subscriber will not come back; nothing is kept for it."""
        query = "DELETE FROM subscribers WHERE app_id = %s AND shard = %s AND replica_version = %s"
        self._session.rows(query, (key.app_id, key.shard, key.replica_version))

    def close(self) -> None:
        """Release the connection."""
        self._session.close()


def _subscribers(rows: Sequence[tuple[str, int, str, str, float]]) -> list[Subscriber]:
    return [Subscriber(SubscriberKey(app, shard, version), ack, seen) for app, shard, version, ack, seen in rows]


class PostgresRequests:
    """`Requests` as rows; any endpoint may ask, the pipeline answers all of them."""

    def __init__(self, address: LogAddress) -> None:
        self._session = Session(address)

    def ask_snapshot(self, above: str, reason: str) -> None:
        """Ask for a snapshot above `above`; the pipeline answers with a new generation."""
        self._session.rows(_ASK, (above if is_valid(above) else EMPTY, reason))

    def pending_snapshot(self) -> SnapshotRequest | None:
        """What is asked for and not yet answered."""
        rows = self._session.rows("SELECT watermark, reason FROM requests WHERE kind = 'snapshot'")
        return SnapshotRequest(*rows[0]) if rows else None

    def withdraw_snapshot(self) -> None:
        """Forget what is asked for."""
        self._session.rows("DELETE FROM requests WHERE kind = 'snapshot'")

    def answer_snapshot(self, newest: str) -> None:
        """Withdraw the request if the newest snapshot satisfies it."""
        self._session.rows("DELETE FROM requests WHERE kind = 'snapshot' AND watermark < %s", (newest,))

    def ask_prune(self, below: str) -> None:
        """Ask that transactions up to and including `below` be forgotten."""
        self._session.rows(_PRUNE, (below,))

    def take_prune(self) -> str | None:
        """The watermark to prune to, once; None if nobody asked."""
        rows = self._session.rows("DELETE FROM requests WHERE kind = 'prune' RETURNING watermark")
        return str(rows[0][0]) if rows and is_valid(rows[0][0]) else None

    def close(self) -> None:
        """Release the connection."""
        self._session.close()


class PostgresReports:
    """`Reports` on this host and in the log's database; the newer counts.

    The database hears of what is urgent (another state, an error, a new warning) at once and of the rest every second.
    While it does not answer, reports are kept on this host only.
    """

    def __init__(self, address: LogAddress, files: FileReports) -> None:
        self._session = Session(address)
        self._files = files
        self._told: dict[str, tuple[object, float]] = {}  # stage → what was told, and when to tell the rest

    def leave(self, stage: str, report: Mapping[str, object]) -> None:
        """Replace the report of a stage."""
        self._files.leave(stage, report)
        gist = report.get("state"), report.get("error"), report.get("urgent")
        told, not_before = self._told.get(stage, (None, 0.0))
        now = time.monotonic()
        if told == gist and now < not_before:
            return
        try:
            self._session.rows(_REPORT, (stage, json.dumps(report)))
            self._told[stage] = gist, now + REPORT_EVERY_S
        except ChangesourceError:
            self._told[stage] = gist, now + _TRY_AGAIN_S

    def all(self) -> dict[str, Report]:
        """The newest report of every stage, whichever host it is on."""
        try:
            rows = self._session.rows("SELECT stage, report FROM reports")
        except ChangesourceError:
            rows = []
        return newest({stage: json.loads(report) for stage, report in rows}, self._files.all())

    def close(self) -> None:
        """Release the connection."""
        self._session.close()


class PostgresOffers:
    """`Offers` for a spool that hosts share by URI: the snapshot is published there, the note is a row."""

    def __init__(self, address: LogAddress, layout: StateDirectory, remote: RemoteSpool) -> None:
        self._session = Session(address)
        self._layout = layout
        self._remote = remote

    def make(self, base: str, directory: Path) -> None:
        """Offer the published snapshot of the folder's name, made from snapshot `base`."""
        self._session.rows(_OFFER, (directory.name, base))

    def is_pending(self) -> bool:
        """Whether an offer waits for the writer."""
        return bool(self._session.rows("SELECT FROM requests WHERE kind = 'offer'"))

    def take(self, writer: LogWriter) -> str | None:
        """Register what is on offer."""
        rows = self._session.rows("SELECT watermark, reason FROM requests WHERE kind = 'offer'")
        if not rows:
            return None
        watermark, base = map(str, rows[0])
        try:
            manifest = self._remote.manifest(watermark)
            registered = writer.add_snapshot(base, record(manifest, self._layout.compaction / watermark))
        except SnapshotGone:
            registered = False
        self.withdraw()
        return watermark if registered else None

    def withdraw(self) -> None:
        """Forget the offer and what compaction left on this host."""
        self._session.rows("DELETE FROM requests WHERE kind = 'offer'")
        shutil.rmtree(self._layout.compaction, ignore_errors=True)

    def close(self) -> None:
        """Release the connection."""
        self._session.close()
