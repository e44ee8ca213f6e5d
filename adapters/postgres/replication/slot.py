"""The replication slot, and snapshots whose position it can continue from.

The slot makes the server keep what the log does not have yet. It outlives processes, and a new snapshot does not
replace it: the snapshot's position comes from a second, temporary slot, so a failed snapshot changes nothing. The slot
is never confirmed beyond what the log has. If it is ahead of the log, or the server has lost it, changes are missing
and a resync is required.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from adapters.postgres.connection import Connection, address, quoted, translated_errors
from adapters.postgres.position import lsn_number, lsn_text
from adapters.postgres.replication.session import server_identity
from adapters.postgres.settings import PostgresSettings
from changesource_sdk import AdapterError, position_lost
from protocol.watermark import from_int

FAILOVER_FROM = 170_000
"""The first server version with failover slots, which a standby can take over."""
_SLOT = """SELECT plugin, database = current_database(), active_pid, confirmed_flush_lsn::text, wal_status
FROM pg_replication_slots WHERE slot_name = %s"""
_HOLDER = "SELECT application_name, coalesce(client_addr::text, 'local') FROM pg_stat_activity WHERE pid = %s"
_NAME_LENGTH = 63


@dataclass(frozen=True, slots=True)
class SlotState:
    """The slot in `pg_replication_slots`; `is_here` says whether it belongs to this database."""

    plugin: str | None
    is_here: bool
    active_pid: int | None
    confirmed: int
    wal_status: str | None

    @property
    def is_lost(self) -> bool:
        """Whether the server has removed WAL that the slot needs."""
        return self.wal_status == "lost"


def slot_state(db: Connection, slot: str) -> SlotState | None:
    """The current state of the slot; None if it does not exist."""
    row = db.execute(_SLOT, (slot,)).fetchone()
    if row is None:
        return None
    plugin, is_here, pid, confirmed, status = row
    return SlotState(plugin, bool(is_here), pid, lsn_number(confirmed) if confirmed else 0, status)


def ensure_slot(db: Connection, settings: PostgresSettings) -> str | None:
    """Create the slot if it does not exist or is lost; returns a sentence about what was done, if anything."""
    slot = settings.slot
    state = slot_state(db, slot)
    if state is None:
        _create(db, slot)
        return f"made the replication slot {slot}"
    if state.plugin != "pgoutput" or not state.is_here:
        raise AdapterError(
            "slot-unsuitable",
            f"the replication slot {slot} is of another kind or of another database",
            where=address(settings.dsn),
            fix="choose another name with the setting `slot`",
        )
    if not state.is_lost:
        return None
    db.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    _create(db, slot)
    return f"created the replication slot {slot} again, since the server had lost it"


def _create(db: Connection, slot: str) -> None:
    failover = ", false, false, true" if db.info.server_version >= FAILOVER_FROM else ""
    db.execute(f"SELECT pg_create_logical_replication_slot(%s, 'pgoutput'{failover})".encode(), (slot,))


def check_resumable(db: Connection, settings: PostgresSettings, after: int) -> None:
    """Raise `ResyncRequired` unless the slot still has everything after a position."""
    state = slot_state(db, settings.slot)
    if state is None:
        raise position_lost(f"the replication slot {settings.slot} is gone")
    if state.is_lost:
        raise position_lost(
            f"the server has thrown away changes that the slot {settings.slot} still needed",
            fix="raise max_slot_wal_keep_size if this happens again; the database is then read again automatically",
        )
    if state.confirmed > after:
        raise position_lost(
            f"the slot {settings.slot} is at {lsn_text(state.confirmed)}, ahead of the log at {lsn_text(after)}",
            fix="let only one pipeline use a slot; the database is then read again automatically",
        )
    answer = db.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
    if answer is not None and lsn_number(answer[0]) < after:
        raise position_lost(f"the server is at {answer[0]}, behind the log at {lsn_text(after)}: it went back in time")


def held_by_another(db: Connection, settings: PostgresSettings) -> AdapterError:
    """The error for a slot that another session reads."""
    state = slot_state(db, settings.slot)
    pid = state.active_pid if state else None
    holder = db.execute(_HOLDER, (pid,)).fetchone() if pid else None
    who = f"process {pid} ({holder[0]} from {holder[1]})" if holder else "another session"
    return AdapterError(
        "slot-in-use",
        f"the replication slot {settings.slot} is read by {who}",
        where=address(settings.dsn),
        fix=f"stop that reader, or end it with SELECT pg_terminate_backend({pid}); it is tried again by itself",
    )


@dataclass(frozen=True, slots=True)
class ExportedSnapshot:
    """A snapshot that other sessions can import until `close`; the stream continues after `lsn`.

    `ahead` is the offset between watermarks and LSNs, and `server` identifies the server of the position (`lineage`).
    """

    lsn: int
    name: str
    server: tuple[str, int]
    close: Callable[[], None]
    ahead: int = 0

    @property
    def watermark(self) -> str:
        return from_int(self.lsn + self.ahead)


def export_snapshot(settings: PostgresSettings) -> ExportedSnapshot:
    """Export a snapshot with its exact position. The server waits for the open transactions to end."""
    suffix = f"_snapshot_{secrets.token_hex(4)}"
    name = settings.slot[: _NAME_LENGTH - len(suffix)] + suffix
    connection = settings.connect(replication=True)
    try:
        with translated_errors(settings.dsn):
            server = server_identity(connection)
            command = f"CREATE_REPLICATION_SLOT {quoted(name)} TEMPORARY LOGICAL pgoutput (SNAPSHOT 'export')"
            made = connection.execute(command.encode()).fetchone()
        if made is None:
            raise AdapterError("no-snapshot", "the server gave no snapshot", address(settings.dsn), "see its log")
    except BaseException:
        connection.close()
        raise
    return ExportedSnapshot(lsn_number(made[1]), str(made[2]), server, connection.close)
