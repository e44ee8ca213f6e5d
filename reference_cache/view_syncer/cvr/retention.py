"""How long the CVR file keeps tombstones: as long as a client may be away.

Tombstones (rows that left a query, queries and desires that ended, deleted mutation results) say what a returning
client must remove. Older ones are deleted, and the newest version among them is recorded: a client whose cookie is
older than a deleted tombstone of its own queries cannot be caught up and starts over. A cookie that is merely old,
because nothing happened to its group, stays valid.
"""

from __future__ import annotations

from collections.abc import Collection

from reference_cache.view_syncer.cvr.file import CvrFile
from reference_cache.view_syncer.cvr.groups import StoredGroup


class Retention:
    """The tombstones in the file. Calls that write must be made inside a transaction of the file."""

    def __init__(self, file: CvrFile) -> None:
        self._file = file

    def note_age(self, now: float) -> None:
        """Record which version the data is at now, in seconds since the epoch."""
        self._file.connection.execute("INSERT INTO ages VALUES (?, ?)", (now, self._file.data_version))

    def version_at(self, time: float) -> str:
        """The newest recorded version at a time; deletes older ages, which are no longer needed."""
        connection = self._file.connection
        version = connection.execute("SELECT max(version) FROM ages WHERE time <= ?", (time,)).fetchone()[0] or ""
        connection.execute("DELETE FROM ages WHERE version < ?", (version,))
        return str(version)

    def forget(self, before: str, groups_in_use: Collection[str]) -> None:
        """Delete the tombstones from before a version, except those of groups in use, which have them in memory."""
        self._forget_rows(before)
        self._forget_of_groups(before, set(groups_in_use))
        self._file.connection.execute("DELETE FROM dropped_results WHERE version < ?", (before,))

    def _forget_rows(self, before: str) -> None:
        connection = self._file.connection
        tombstones = "FROM records WHERE query = ? AND patch_version < ? AND NOT there"
        for (query,) in connection.execute("SELECT id FROM queries WHERE last_patch > forgotten").fetchall():
            newest = connection.execute(f"SELECT max(patch_version) {tombstones}", (query, before)).fetchone()[0]
            if newest is not None:
                connection.execute(f"DELETE {tombstones}", (query, before))
                connection.execute("UPDATE queries SET forgotten = ? WHERE id = ?", (newest, query))

    def _forget_of_groups(self, before: str, in_use: set[str]) -> None:
        connection = self._file.connection
        sql = (
            "SELECT group_id, max(version) FROM ("
            "SELECT group_id, removed AS version FROM memberships WHERE removed < ?1 UNION ALL "
            "SELECT group_id, version FROM group_queries WHERE deleted AND version < ?1) GROUP BY group_id"
        )
        for group_id, newest in connection.execute(sql, (before,)).fetchall():
            if group_id not in in_use:
                self._forget_of_group(group_id, before, newest)

    def _forget_of_group(self, group_id: str, before: str, newest: str) -> None:
        connection, arguments = self._file.connection, (group_id, before)
        connection.execute("DELETE FROM memberships WHERE group_id = ? AND removed < ?", arguments)
        ended = "SELECT hash FROM group_queries WHERE group_id = ?1 AND deleted AND version < ?2"
        connection.execute(f"DELETE FROM desires WHERE group_id = ?1 AND hash IN ({ended})", arguments)
        connection.execute("DELETE FROM group_queries WHERE group_id = ? AND deleted AND version < ?", arguments)
        connection.execute("UPDATE groups SET forgotten = ? WHERE id = ?", (newest, group_id))

    def forget_ended(self, stored: StoredGroup) -> str:
        """Delete the older half of the tombstones of a group in use.

        Clients with a cookie before the returned version cannot be caught up.
        """
        group_id = stored.config.group_id
        before = stored.config.forget_ended()
        for query_id, membership in list(stored.memberships.items()):
            if membership.removed is not None and membership.removed < before:
                del stored.memberships[query_id]
        self._forget_of_group(group_id, before, before)
        self._file.connection.execute(
            "DELETE FROM desires WHERE group_id = ?1 AND version < ?2 AND inactivated_at IS NOT NULL "
            "AND hash IN (SELECT hash FROM desires WHERE group_id = ?1 AND inactivated_at IS NULL)",
            (group_id, before),
        )
        return before

    def reaches_back_to(self, group_id: str, cookie: str) -> bool:
        """Whether a client of the group can be caught up from this cookie; from one before any data it always can."""
        sql = (
            "SELECT 1 FROM groups WHERE id = ?1 AND forgotten > ?2 AND ?2 >= '01' UNION ALL "
            "SELECT 1 FROM memberships JOIN queries ON id = query "
            "WHERE group_id = ?1 AND since <= ?2 AND (removed IS NULL OR removed > ?2) AND forgotten > ?2 LIMIT 1"
        )
        return self._file.connection.execute(sql, (group_id, cookie)).fetchone() is None
