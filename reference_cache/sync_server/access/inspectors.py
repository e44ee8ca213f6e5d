"""Which client groups may use the inspector: those that sent the admin password.

Without a password configured, none may, except in development.
"""

from __future__ import annotations

import hmac

from reference_cache.config import CacheConfig


class Inspectors:
    """The authenticated groups, while they are connected."""

    def __init__(self, config: CacheConfig) -> None:
        self._password = config.admin_password
        self._is_open = config.development and not config.admin_password
        # Group ids; written by `authenticate`, and by `forget` when a group's last connection closes.
        self._groups: set[str] = set()

    def authenticate(self, group_id: str, password: str) -> bool:
        """Whether the password is correct; a wrong one revokes an earlier correct one."""
        self._groups.discard(group_id)
        if self._password:
            is_right = hmac.compare_digest(password.encode(), self._password.encode())
        else:
            is_right = self._is_open and not password
        if is_right:
            self._groups.add(group_id)
        return is_right

    def admits(self, group_id: str) -> bool:
        """Whether the group may use the inspector."""
        return self._is_open or group_id in self._groups

    def forget(self, group_id: str) -> None:
        """Revoke the access of a group without connections."""
        self._groups.discard(group_id)
