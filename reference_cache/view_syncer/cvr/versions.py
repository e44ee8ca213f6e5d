"""Versions of a client group's view: the cookies clients hold.

    cookie = state version [":" config version]

The state version is the replica's; the config version counts the changes of the group's queries at that state version.
Both are LexiVersions, so cookies compare as plain strings; they are kept and compared as strings everywhere.
"""

from __future__ import annotations

from protocol import watermark
from protocol.errors import WatermarkError


class CookieError(ValueError):
    """A text that is no cookie."""

    code = "bad-cookie"


def check(cookie: str) -> str:
    """Return a valid cookie as it is; raise `CookieError` for any other text."""
    state, colon, config = cookie.partition(":")
    try:
        watermark.to_int(state)
        if colon and watermark.to_int(config)[1] is not None:
            raise CookieError(f"{cookie!r} is no cookie: the part after the colon has a dot")
    except WatermarkError as error:
        raise CookieError(f"{cookie!r} is no cookie: {error}") from None
    return cookie


def state_of(version: str) -> str:
    """The state version in a cookie."""
    return version.partition(":")[0]


def next_config(version: str) -> str:
    """The version after a change of queries at the same state version."""
    state, colon, config = version.partition(":")
    number = watermark.to_int(config)[0] if colon else 0
    return f"{state}:{watermark.from_int(number + 1)}"


def next_version(version: str, data_version: str) -> str:
    """The version after a change of queries at a state version, which is never older than the view's."""
    return data_version if data_version > state_of(version) else next_config(version)
