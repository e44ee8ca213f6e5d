"""What a client of the sync protocol knows: rows and a cookie, changed by whole pokes only.

It keeps the official client's rules, and fails where that one would: a poke starts from the cookie one has, does not go
back, and is nothing until its end has come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Key = tuple[str, tuple[Any, ...]]


class ViewMirror:
    """Rows by table and key. Invariant: `rows` is what the cache showed at `cookie`."""

    def __init__(self, keys: dict[str, Sequence[str]]) -> None:
        self.cookie: str | None = None
        self.rows: dict[Key, dict[str, Any]] = {}
        self.pokes = 0
        self._keys = keys
        self._open: list[dict[str, Any]] | None = None

    def reconnected(self) -> None:
        """A poke that was under way is gone with its connection."""
        self._open = None

    def take(self, message: Sequence[Any]) -> bool:
        """Apply a message; whether it completed a poke."""
        tag, body = message
        assert tag != "error", body
        if tag == "pokeStart":
            assert self._open is None, "pokes do not interleave"
            assert body["baseCookie"] == self.cookie, (body, self.cookie)
            self._open = []
        elif tag == "pokePart":
            assert self._open is not None
            self._open.append(body)
        elif tag == "pokeEnd":
            self._end(body)
            return True
        return False

    def table(self, name: str) -> list[dict[str, Any]]:
        return [row for (table, _), row in self.rows.items() if table == name]

    def _end(self, body: dict[str, Any]) -> None:
        assert self._open is not None
        parts, self._open = self._open, None
        if body.get("cancel"):
            return
        assert self.cookie is None or body["cookie"] >= self.cookie
        assert body["cookie"] != self.cookie or not parts, "a poke that says something moves the cookie"
        for part in parts:
            for patch in part.get("rowsPatch", ()):
                self._apply(patch)
        self.cookie = body["cookie"]
        self.pokes += 1

    def _apply(self, patch: dict[str, Any]) -> None:
        columns, table = self._keys[patch["tableName"]], patch["tableName"]
        source = patch["value"] if patch["op"] == "put" else patch["id"]
        key = (table, tuple(source[column] for column in columns))
        if patch["op"] == "put":
            self.rows[key] = patch["value"]
        else:
            self.rows.pop(key, None)
