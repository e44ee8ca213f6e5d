"""The replication slot: made, checked, given up; and the snapshots whose position it can continue from.

The slot keeps what the log does not have yet. It outlives processes, and a new snapshot does not replace it: the
snapshot's position comes from a second, temporary slot, so a snapshot that fails costs nothing. The slot never
confirms more than the log holds; one that is ahead of the log, or was lost by the server, means that changes are
missing and the store must be read anew.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from adapters.postgres.connection import Connection, naming_the_cause, place, quoted
from adapters.postgres.replication.session import lsn_number, lsn_text, server_identity
from adapters.postgres.settings import PostgresSettings
from changesource_sdk import AdapterError, position_lost
from protocol.watermark import from_int

FAILOVER_FROM = 170_000
"""The first server version whose slots can be carried over to a standby."""
_SLOT = """SELECT plugin, database = current_database(), active_pid, confirmed_flush_lsn::text, wal_status
FROM pg_replication_slots WHERE slot_name = %s"""
_HOLDER = "SELECT application_name, coalesce(client_addr::text, 'local') FROM pg_stat_activity WHERE pid = %s"
_NAME_LENGTH = 63


@dataclass(frozen=True, slots=True)
class SlotState:
    """What the server says of the slot."""

    plugin: str | None
    is_here: bool
    active_pid: int | None
    confirmed: int
    wal_status: str | None

    @property
    def is_lost(self) -> bool:
        """Whether the server has thrown away what it needs."""
        return self.wal_status == "lost"


def slot_state(db: Connection, slot: str) -> SlotState | None:
    """The slot as it is now, if it is there."""
    found = db.execute(_SLOT, (slot,)).fetchone()
    if found is None:
        return None
    plugin, is_here, pid, confirmed, status = found
    return SlotState(plugin, bool(is_here), pid, lsn_number(confirmed) if confirmed else 0, status)


def ensure_slot(db: Connection, settings: PostgresSettings) -> str | None:
    """Make the slot if it is absent or lost; what was done, if anything."""
    slot = settings.slot
    found = slot_state(db, slot)
    if found is None:
        _create(db, slot)
        return f"made the replication slot {slot}"
    if found.plugin != "pgoutput" or not found.is_here:
        raise AdapterError(
            "slot-unsuitable",
            f"the replication slot {slot} is of another kind or of another database",
            where=place(settings.dsn),
            fix="choose another name with the setting `slot`",
        )
    if not found.is_lost:
        return None
    db.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    _create(db, slot)
    return f"made the replication slot {slot} anew, since the server had lost it"


def _create(db: Connection, slot: str) -> None:
    failover = ", false, false, true" if db.info.server_version >= FAILOVER_FROM else ""
    db.execute(f"SELECT pg_create_logical_replication_slot(%s, 'pgoutput'{failover})".encode(), (slot,))


def check_resumable(db: Connection, settings: PostgresSettings, after: int) -> None:
    """Raise `ResyncRequired` unless the slot still holds everything after a position."""
    found = slot_state(db, settings.slot)
    if found is None:
        raise position_lost(f"the replication slot {settings.slot} is gone")
    if found.is_lost:
        raise position_lost(
            f"the server has thrown away changes that the slot {settings.slot} still needed",
            fix="raise max_slot_wal_keep_size if this happens again; the store is read anew by itself",
        )
    if found.confirmed > after:
        raise position_lost(
            f"the slot {settings.slot} is at {lsn_text(found.confirmed)}, ahead of the log at {lsn_text(after)}",
            fix="let only one pipeline use a slot; the store is read anew by itself",
        )
    answer = db.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
    if answer is not None and lsn_number(answer[0]) < after:
        raise position_lost(f"the server is at {answer[0]}, behind the log at {lsn_text(after)}: it went back in time")


def held_by_another(db: Connection, settings: PostgresSettings) -> AdapterError:
    """The error for a slot that someone else reads from."""
    found = slot_state(db, settings.slot)
    pid = found.active_pid if found else None
    holder = db.execute(_HOLDER, (pid,)).fetchone() if pid else None
    who = f"process {pid} ({holder[0]} from {holder[1]})" if holder else "another session"
    return AdapterError(
        "slot-in-use",
        f"the replication slot {settings.slot} is read by {who}",
        where=place(settings.dsn),
        fix=f"stop that reader, or end it with SELECT pg_terminate_backend({pid}); it is tried again by itself",
    )


@dataclass(frozen=True, slots=True)
class ExportedSnapshot:
    """A state of the store that other sessions can read until `close`; the stream continues after `lsn`.

    Watermarks are `ahead` of positions, and `server` is the history the position belongs to (`lineage`).
    """

    lsn: int
    name: str
    server: tuple[str, int]
    close: Callable[[], None]
    ahead: int = 0

    @property
    def watermark(self) -> str:
        """The watermark of this state."""
        return from_int(self.lsn + self.ahead)


def export_snapshot(settings: PostgresSettings) -> ExportedSnapshot:
    """A snapshot whose position is exact. Waits for transactions that are under way."""
    suffix = f"_snapshot_{secrets.token_hex(4)}"
    name = settings.slot[: _NAME_LENGTH - len(suffix)] + suffix
    connection = settings.connect(replication=True)
    try:
        with naming_the_cause(settings.dsn):
            server = server_identity(connection)
            command = f"CREATE_REPLICATION_SLOT {quoted(name)} TEMPORARY LOGICAL pgoutput (SNAPSHOT 'export')"
            made = connection.execute(command.encode()).fetchone()
        if made is None:
            raise AdapterError("no-snapshot", "the server gave no snapshot", place(settings.dsn), "see its log")
    except BaseException:
        connection.close()
        raise
    return ExportedSnapshot(lsn_number(made[1]), str(made[2]), server, connection.close)
