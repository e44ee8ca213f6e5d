"""Who may ask the inspector's questions: client groups that have given the admin password.

Where no password is set, nobody may, except in development.
"""

from __future__ import annotations

import hmac

from reference_cache.config import CacheConfig


class Inspectors:
    """The groups that are let in, while they are connected."""

    def __init__(self, config: CacheConfig) -> None:
        self._password = config.admin_password
        self._is_open = config.development and not config.admin_password
        self._groups: set[str] = set()

    def authenticate(self, group_id: str, password: str) -> bool:
        """Whether the password is right; a wrong one takes back what a right one gave."""
        self._groups.discard(group_id)
        if self._password:
            is_right = hmac.compare_digest(password.encode(), self._password.encode())
        else:
            is_right = self._is_open and not password
        if is_right:
            self._groups.add(group_id)
        return is_right

    def admits(self, group_id: str) -> bool:
        """Whether the group may ask."""
        return self._is_open or group_id in self._groups

    def forget(self, group_id: str) -> None:
        """The group has gone."""
        self._groups.discard(group_id)
