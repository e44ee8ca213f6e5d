"""Whether the server still has the history that was read. After a failover it may not.

A server is identified by its system identifier and its timeline. A promoted standby begins a new timeline at the LSN up
to which it had followed the primary. What was read beyond that LSN does not exist there, and a resync is required.

Such a server, or one restored from a backup, uses LSNs again that were used before. Watermarks must still increase, so
from then on an offset is added to them.
"""

from __future__ import annotations

from collections.abc import Iterator

from adapters.postgres.catalog.model import STATE_SCHEMA
from adapters.postgres.connection import Connection, translated_errors
from adapters.postgres.position import lsn_number, lsn_text
from adapters.postgres.replication.session import server_identity
from adapters.postgres.settings import PostgresSettings
from changesource_sdk import position_lost

_KNOWN = f"SELECT server FROM {STATE_SCHEMA}.pipelines WHERE slot = %s"
_REMEMBER = f"UPDATE {STATE_SCHEMA}.pipelines SET server = %s WHERE slot = %s AND server <> %s"
_AHEAD = f"SELECT ahead FROM {STATE_SCHEMA}.pipelines WHERE slot = %s"
_GO_AHEAD = f"""UPDATE {STATE_SCHEMA}.pipelines
SET ahead = ahead + (%(after)s::pg_lsn - pg_current_wal_flush_lsn())::bigint + %(margin)s
WHERE slot = %(slot)s AND pg_current_wal_flush_lsn() <= %(after)s::pg_lsn"""
MARGIN = 1 << 24
"""More than the watermarks that several snapshots without a change in between need above the last position."""


def watermarks_ahead(db: Connection, slot: str) -> int:
    """The offset between watermarks and LSNs."""
    row = db.execute(_AHEAD, (slot,)).fetchone()
    return int(row[0]) if row else 0


def keep_watermarks_growing(db: Connection, slot: str, after: int) -> None:
    """Before a resync.

    If the server's LSN is below a used position, increase the offset so that watermarks are above it.
    """
    db.execute(_GO_AHEAD, {"after": lsn_text(after), "margin": MARGIN, "slot": slot})


def check_lineage(db: Connection, settings: PostgresSettings, after: int) -> None:
    """Raise `ResyncRequired` if this server's history does not contain `after`; store the server's identity."""
    session = settings.connect(replication=True)
    try:
        with translated_errors(settings.dsn):
            system, timeline = server_identity(session)
            known = db.execute(_KNOWN, (settings.slot,)).fetchone()
            if known and known[0]:
                before, was_on = known[0].split("/")
                if before != system:
                    raise position_lost("the database is on another server now")
                if int(was_on) < timeline:
                    _check_fork(session, int(was_on), timeline, after)
            remember_server(db, settings.slot, system, timeline)
    finally:
        session.close()


def remember_server(db: Connection, slot: str, system: str, timeline: int) -> None:
    """Store the identity of the server that positions belong to."""
    server = f"{system}/{timeline}"
    db.execute(_REMEMBER, (server, slot, server))


def _check_fork(session: Connection, was_on: int, timeline: int, after: int) -> None:
    answer = session.execute(f"TIMELINE_HISTORY {timeline}".encode()).fetchone()
    content = answer[1] if answer else ""
    ends = dict(timeline_ends(content if isinstance(content, str) else bytes(content).decode()))
    if was_on not in ends:
        raise position_lost(f"the server's history does not hold timeline {was_on}, which was followed")
    if after > ends[was_on]:
        fork, read = lsn_text(ends[was_on]), lsn_text(after)
        raise position_lost(f"the server left the followed history at {fork}, and changes up to {read} were read")


def timeline_ends(history: str) -> Iterator[tuple[int, int]]:
    """The timelines of a history file, and the LSN at which each ended."""
    for line in history.splitlines():
        fields = line.split()
        if len(fields) >= 2 and fields[0].isdigit():
            yield int(fields[0]), lsn_number(fields[1])
