"""The store of the demo: a small issue tracker in SQLite, and someone who works in it."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from dataclasses import dataclass
from pathlib import Path

ISSUES, COMMENTS = 1000, 3000
PAUSE_S = 0.25
STATUSES = ("open", "in progress", "done")
_SCHEMA = """
CREATE TABLE issue (id INTEGER PRIMARY KEY, title TEXT NOT NULL, status TEXT NOT NULL, modified REAL NOT NULL);
CREATE TABLE comment (id INTEGER PRIMARY KEY, issue_id INTEGER NOT NULL, body TEXT, modified REAL NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class IssueTracker:
    """A database file with issues and comments; `modified` is the epoch millisecond of the last change."""

    path: Path
    issues: int

    @classmethod
    def create(cls, path: Path) -> IssueTracker:
        """A fresh tracker in place of whatever was there."""
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        with sqlite3.connect(path) as store:
            store.execute("PRAGMA journal_mode=WAL")
            store.executescript(_SCHEMA)
            now = time.time() * 1000
            issues = ((n, f"Issue {n}", STATUSES[n % 3], now) for n in range(1, ISSUES + 1))
            store.executemany("INSERT INTO issue VALUES (?, ?, ?, ?)", issues)
            comments = ((n, n % ISSUES + 1, f"Comment {n}", now) for n in range(1, COMMENTS + 1))
            store.executemany("INSERT INTO comment VALUES (?, ?, ?, ?)", comments)
        store.close()
        return cls(path, ISSUES)

    def keep_writing(self, stop: threading.Event) -> None:
        """Change an issue, and now and then comment on it in the same transaction, until told to stop."""
        chance = random.Random(1)
        store = sqlite3.connect(self.path, timeout=30)
        try:
            while not stop.wait(PAUSE_S):
                issue, now = chance.randint(1, self.issues), time.time() * 1000
                with store:
                    change = (chance.choice(STATUSES), now, issue)
                    store.execute("UPDATE issue SET status = ?, modified = ? WHERE id = ?", change)
                    if chance.random() < 0.3:
                        comment = (issue, "Looking into it", now)
                        store.execute("INSERT INTO comment (issue_id, body, modified) VALUES (?, ?, ?)", comment)
        finally:
            store.close()
