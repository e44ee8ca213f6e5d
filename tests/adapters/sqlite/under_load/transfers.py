"""A writer in a process of its own: money moves between accounts, and the total never changes.

A state in which the total differs is a store transaction torn apart. On the way the schema changes a few times. The
last transaction leaves a row in `finished`. Without a pause it writes as fast as the machine lets it, so that whoever
reads has the more to do the longer it is kept from it.
"""

import random
import sqlite3
import subprocess
import sys
import threading

ACCOUNTS = 50
TOTAL = ACCOUNTS * 100
SCHEMA_EVERY = 200


def create(path: str, journal: str = "wal") -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(f"PRAGMA journal_mode = {journal}")
    db.execute("CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)")
    db.execute("CREATE TABLE finished (id INTEGER PRIMARY KEY)")
    db.executemany("INSERT INTO accounts VALUES (?, 100)", [(number,) for number in range(ACCOUNTS)])
    db.close()


def transfer(path: str, seed: int, pause_s: float, told_to_stop: threading.Event) -> None:
    db, rng = sqlite3.connect(path, isolation_level=None, timeout=60), random.Random(seed)
    db.execute("PRAGMA synchronous = OFF")
    number = 0
    while not told_to_stop.is_set():
        number += 1
        db.execute("BEGIN IMMEDIATE")
        if number % SCHEMA_EVERY == 5:
            db.execute(f"ALTER TABLE accounts ADD COLUMN note{number} TEXT DEFAULT 'none'")
        if number % 7 == 0:
            close_account(db, rng)
        for _ in range(rng.randint(1, 5)):
            payer, payee = rng.sample(account_numbers(db), 2)
            amount = rng.randint(1, 30)
            db.execute("UPDATE accounts SET balance = balance - ? WHERE id = ?", (amount, payer))
            db.execute("UPDATE accounts SET balance = balance + ? WHERE id = ?", (amount, payee))
        db.execute("COMMIT")
        if pause_s:
            told_to_stop.wait(pause_s)
    db.execute("INSERT INTO finished VALUES (1)")
    db.close()


class Writer:
    """The process; `finish` makes it write its last row and end."""

    def __init__(self, path: str, seed: int, pause_s: float = 0.0) -> None:
        command = [sys.executable, __file__, path, str(seed), str(pause_s)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE)

    def finish(self) -> None:
        assert self.process.poll() is None
        self.process.communicate()
        assert self.process.returncode == 0

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


def account_numbers(db: sqlite3.Connection) -> list[int]:
    return [number for (number,) in db.execute("SELECT id FROM accounts")]


def close_account(db: sqlite3.Connection, rng: random.Random) -> None:
    """Replace an account by a new one with the same balance."""
    gone = rng.choice(account_numbers(db))
    (balance,) = db.execute("SELECT balance FROM accounts WHERE id = ?", (gone,)).fetchone()
    db.execute("DELETE FROM accounts WHERE id = ?", (gone,))
    db.execute("INSERT INTO accounts (id, balance) SELECT max(id) + 1, ? FROM accounts", (balance,))


def main(path: str, seed: int, pause_s: float) -> None:
    told_to_stop = threading.Event()
    threading.Thread(target=transfer, args=(path, seed, pause_s, told_to_stop)).start()
    sys.stdin.read()
    told_to_stop.set()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
