"""Whether the server still has the history that was read: after a failover, it may not.

A server is known by its system identifier and the timeline it writes. A promoted standby begins a new timeline at the
point up to which it had followed; what was read beyond it never happened there, and the store must be read anew.

Such a server, or one restored from a backup, counts positions that were used before. Watermarks must grow all the same,
so from then on they are ahead of positions by what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator

from adapters.postgres.catalog.model import STATE_SCHEMA
from adapters.postgres.connection import Connection, naming_the_cause
from adapters.postgres.replication.session import lsn_number, lsn_text, server_identity
from adapters.postgres.settings import PostgresSettings
from changesource_sdk import position_lost

_KNOWN = f"SELECT server FROM {STATE_SCHEMA}.pipelines WHERE slot = %s"
_REMEMBER = f"UPDATE {STATE_SCHEMA}.pipelines SET server = %s WHERE slot = %s AND server <> %s"
_AHEAD = f"SELECT ahead FROM {STATE_SCHEMA}.pipelines WHERE slot = %s"
_GO_AHEAD = f"""UPDATE {STATE_SCHEMA}.pipelines
SET ahead = ahead + (%(after)s::pg_lsn - pg_current_wal_flush_lsn())::bigint + %(margin)s
WHERE slot = %(slot)s AND pg_current_wal_flush_lsn() <= %(after)s::pg_lsn"""
MARGIN = 1 << 24
"""Above the last position by more than the watermarks that snapshots without a change in between use up."""


def watermarks_ahead(db: Connection, slot: str) -> int:
    """By how much watermarks are ahead of positions."""
    found = db.execute(_AHEAD, (slot,)).fetchone()
    return int(found[0]) if found else 0


def keep_watermarks_growing(db: Connection, slot: str, after: int) -> None:
    """The store is read anew: if its server is behind a position that was used, watermarks go ahead of it."""
    db.execute(_GO_AHEAD, {"after": lsn_text(after), "margin": MARGIN, "slot": slot})


def check_lineage(db: Connection, settings: PostgresSettings, after: int) -> None:
    """Raise `ResyncRequired` if this server's history does not hold `after`; remember the server."""
    session = settings.connect(replication=True)
    try:
        with naming_the_cause(settings.dsn):
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
    """The history that positions belong to from now on."""
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
    """Timelines of a history file, and where each was left."""
    for line in history.splitlines():
        fields = line.split()
        if len(fields) >= 2 and fields[0].isdigit():
            yield int(fields[0]), lsn_number(fields[1])
