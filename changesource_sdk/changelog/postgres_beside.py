"""What travels beside a log kept in Postgres: acknowledgements and requests, shared by all endpoints."""

from __future__ import annotations

from changesource_sdk.changelog.log import EMPTY
from changesource_sdk.changelog.postgres_connection import LogAddress, Session
from changesource_sdk.changelog.store import SnapshotRequest
from changesource_sdk.changelog.subscribers import Subscriber, SubscriberKey
from protocol.watermark import is_valid

_ACKNOWLEDGE = """INSERT INTO subscribers AS known VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (app_id, shard, replica_version) DO UPDATE
SET acknowledged = greatest(known.acknowledged, excluded.acknowledged),
  seen_ms = greatest(known.seen_ms, excluded.seen_ms)"""
_ASK = """INSERT INTO requests AS pending VALUES ('snapshot', %s, %s) ON CONFLICT (kind) DO UPDATE
SET watermark = excluded.watermark, reason = excluded.reason WHERE pending.watermark < excluded.watermark"""
_PRUNE = """INSERT INTO requests VALUES ('prune', %s, '') ON CONFLICT (kind) DO UPDATE
SET watermark = excluded.watermark"""


class PostgresSubscribers:
    """`Subscribers` in the log's database; every endpoint sees the acknowledgements that any of them received."""

    def __init__(self, address: LogAddress) -> None:
        self._session = Session(address)

    def acknowledge(self, key: SubscriberKey, watermark: str, now_ms: float) -> None:
        """The subscriber has everything up to and including `watermark`."""
        self._session.rows(_ACKNOWLEDGE, (key.app_id, key.shard, key.replica_version, watermark, now_ms))

    def all(self) -> list[Subscriber]:
        """Every subscriber known, in key order."""
        query = "SELECT app_id, shard, replica_version, acknowledged, seen_ms FROM subscribers ORDER BY 1, 2, 3"
        rows = self._session.rows(query)
        return [Subscriber(SubscriberKey(app, shard, version), ack, seen) for app, shard, version, ack, seen in rows]

    def forget(self, key: SubscriberKey) -> None:
        """The subscriber will not come back; nothing is kept for it."""
        query = "DELETE FROM subscribers WHERE app_id = %s AND shard = %s AND replica_version = %s"
        self._session.rows(query, (key.app_id, key.shard, key.replica_version))

    def close(self) -> None:
        """Release the connection."""
        self._session.close()


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
