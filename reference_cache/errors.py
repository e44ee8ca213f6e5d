"""Errors of the cache and its client that a user can fix."""

from __future__ import annotations

from service_kit.errors import CodedError


class CacheError(CodedError):
    """Base of the errors of a cache and of its client."""


class BadSetting(CacheError):
    """A variable that is missing, or that has a value it cannot have."""

    def __init__(self, variable: str, message: str, fix: str) -> None:
        super().__init__("bad-setting", message, variable, fix)
