"""The upstream of the demo: a small issue tracker in SQLite, and a writer that changes it."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

ISSUES, COMMENTS = 1000, 3000
WRITES_PER_SECOND = 4.0
STATUSES = ("open", "in progress", "done")
OWNERS = ("Ada", "Barbara", "Edsger", "Grace", "Leslie", "Tony")
_VERBS = ("Show", "Sort", "Cache", "Rename", "Explain", "Speed up", "Translate", "Archive")
_THINGS = ("the overview", "search results", "old invoices", "the sign-in page", "column names", "release notes")
_PINNED_TITLES = (
    "Show who is viewing an issue",
    "Keep drafts when the network is gone",
    "Sort by the last change",
    "Explain why a write was refused",
    "Open an issue from the keyboard",
)
PINNED = len(_PINNED_TITLES)
"""How many issues, from the first, only the page's two clients edit; the writer leaves them alone."""

_SCHEMA = """
CREATE TABLE issue (
  id INTEGER PRIMARY KEY, title TEXT NOT NULL, status TEXT NOT NULL, owner TEXT NOT NULL, pinned BOOLEAN NOT NULL,
  modified REAL NOT NULL);
CREATE TABLE comment (
  id INTEGER PRIMARY KEY, issue_id INTEGER NOT NULL, author TEXT NOT NULL, body TEXT, modified REAL NOT NULL);
CREATE TABLE "zero_0.clients" (
  "clientGroupID" TEXT NOT NULL, "clientID" TEXT NOT NULL, "lastMutationID" INTEGER NOT NULL, "userID" TEXT,
  PRIMARY KEY ("clientGroupID", "clientID"));
CREATE TABLE "zero_0.mutations" (
  "clientGroupID" TEXT NOT NULL, "clientID" TEXT NOT NULL, "mutationID" INTEGER NOT NULL, mutation JSON, result JSON,
  PRIMARY KEY ("clientGroupID", "clientID", "mutationID"));
"""


@dataclass(frozen=True, slots=True)
class IssueTracker:
    """A database file with issues and comments; `modified` is the epoch millisecond of the last change."""

    path: Path
    issues: int

    @classmethod
    def create(cls, path: Path) -> IssueTracker:
        """Create the database with its first rows, replacing a file of that name."""
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as store:
            store.execute("PRAGMA journal_mode=WAL")
            store.executescript(_SCHEMA)
            with store:
                store.executemany("INSERT INTO issue VALUES (?, ?, ?, ?, ?, ?)", _issues())
                store.executemany("INSERT INTO comment VALUES (?, ?, ?, ?, ?)", _comments())
        return cls(path, ISSUES)


def _issues() -> Iterator[tuple[object, ...]]:
    chance, now = random.Random(7), time.time() * 1000
    for number in range(1, ISSUES + 1):
        title = f"{chance.choice(_VERBS)} {chance.choice(_THINGS)}"
        if number <= PINNED:
            title = _PINNED_TITLES[number - 1]
        yield number, title, chance.choice(STATUSES), chance.choice(OWNERS), number <= PINNED, now


def _comments() -> Iterator[tuple[object, ...]]:
    now = time.time() * 1000
    for number in range(1, COMMENTS + 1):
        yield number, number % ISSUES + 1, OWNERS[number % len(OWNERS)], f"Comment {number}", now


@dataclass(slots=True)
class Writer:
    """Changes issues at a steady rate, in its own thread until `stop` is set; some changes come with a comment."""

    tracker: IssueTracker
    # Transactions per second, 0 to pause; the page's server changes it at any time.
    per_second: float = WRITES_PER_SECOND
    # Transactions committed so far; written by the thread.
    writes: int = 0
    # When the last one was committed, in epoch seconds; None before the first. Written by the thread.
    wrote_at: float | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> threading.Thread:
        """Start the thread."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        chance = random.Random(1)
        with closing(sqlite3.connect(self.tracker.path, timeout=30)) as store:
            while not self.stop.wait(1 / self.per_second if self.per_second else 0.1):
                if self.per_second:
                    self._write(store, chance)

    def _write(self, store: sqlite3.Connection, chance: random.Random) -> None:
        now = time.time()
        with store:
            issue = chance.randint(PINNED + 1, self.tracker.issues)
            change = (chance.choice(STATUSES), chance.choice(OWNERS), now * 1000, issue)
            store.execute("UPDATE issue SET status = ?, owner = ?, modified = ? WHERE id = ?", change)
            if chance.random() < 0.3:
                comment = (issue, chance.choice(OWNERS), "Looking into it", now * 1000)
                store.execute("INSERT INTO comment (issue_id, author, body, modified) VALUES (?, ?, ?, ?)", comment)
        self.writes += 1
        self.wrote_at = now
