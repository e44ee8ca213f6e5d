"""A scratch Postgres server: its own data folder, its own free port, gone when closed.

Place in the flow: zero-cache keeps its client view records and its change log in it; the fixture `postgres`
holds one for the whole test run, and every zero-cache gets a database of its own. Contract: never runs as root
(Postgres refuses to): when we are root, an existing unprivileged account runs it. Durability is switched off:
nothing outlives the run.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import psycopg

from tests.support.ports import free_port
from tests.support.tools import MissingTool, postgres_bin
from tests.support.waiting import until

ACCOUNTS = ("postgres", "nobody")
READY_LINES = ("ready to accept connections", "ready to accept read-only connections")
READY_SECONDS = 120
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "300",
    "shared_buffers": "32MB",
    "log_min_messages": "warning",
}


class PostgresServer:
    """One running server; `url(database)` is valid until `close()`."""

    def __init__(self, *, copy_of: PostgresServer | None = None, **settings: str) -> None:
        """Start an empty server, or a standby that follows another."""
        self.port = free_port()
        self._copy_of = copy_of
        self._settings = {**SETTINGS, **settings, "port": str(self.port)}
        self._account = unprivileged_account("Postgres", ACCOUNTS)
        self._folder = Path(tempfile.mkdtemp(prefix="changesource-pg-"))
        self._process: subprocess.Popen[str] | None = None
        self._log: list[str] = []
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> PostgresServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://changesource@127.0.0.1:{self.port}/{database}"

    def create_database(self, prefix: str = "db") -> str:
        """Create an empty database and return its URL."""
        name = f"{prefix}_{secrets.token_hex(4)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return self.url(name)

    def close(self) -> None:
        """Stop at once (nothing in it matters) and remove the data folder."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            try:
                self._process.wait(READY_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def kill(self) -> None:
        """SIGKILL of every process of the server; what was flushed stays."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)  # so that it starts no more while we look
        children = _children(self._process.pid)
        for pid in (self._process.pid, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        until(lambda: not any(map(_is_alive, children)), "the server's processes to be gone")

    def stop(self) -> None:
        """A fast shutdown, as an administrator does it."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._process.wait(READY_SECONDS)

    def promote(self) -> None:
        """Make a standby a primary of its own."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")

    def start_again(self) -> None:
        """The same server on the same port, recovered from what was left."""
        self._run()

    def _start(self) -> None:
        data = self._folder / "data"
        if self._account is not None:
            os.chown(self._folder, self._account.pw_uid, self._account.pw_gid)
        command = ["initdb", "--auth=trust", "--username=changesource", "--encoding=UTF8", "--locale=C", "--no-sync"]
        if self._copy_of is not None:
            command = ["pg_basebackup", "-d", self._copy_of.url(), "-R", "-X", "stream", "-c", "fast", "--no-sync"]
        made = subprocess.run(
            [postgres_bin() / command[0], *command[1:], "-D", data],
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
            user=self._account and self._account.pw_uid,
            group=self._account and self._account.pw_gid,
        )
        if made.returncode != 0:
            raise MissingTool(f"{command[0]} failed: {made.stdout}{made.stderr}")
        self._run()

    def _run(self) -> None:
        data = self._folder / "data"
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        self._process = subprocess.Popen(
            [postgres_bin() / "postgres", "-D", data, *options],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            user=self._account and self._account.pw_uid,
            group=self._account and self._account.pw_gid,
        )
        settled = threading.Event()
        threading.Thread(target=self._read_log, args=(self._process, settled), daemon=True).start()
        if not settled.wait(READY_SECONDS) or self._process.poll() is not None:
            raise MissingTool("Postgres did not start:\n" + "".join(self._log[-40:]))

    def _read_log(self, process: subprocess.Popen[str], settled: threading.Event) -> None:
        """Keep what one run of the server says; it has settled once it is ready or gone."""
        assert process.stderr is not None
        for line in process.stderr:
            self._log.append(line)
            if any(ready in line for ready in READY_LINES):
                settled.set()
        process.wait()
        settled.set()


def _children(parent: int) -> list[int]:
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _parent(pid) == parent]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def unprivileged_account(server: str, accounts: Sequence[str]) -> pwd.struct_passwd | None:
    """The first of the accounts that exists, to run the server when we are root; None when we are not."""
    if os.geteuid() != 0:
        return None
    for name in accounts:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise MissingTool(f"{server} does not run as root, and there is no account named {' or '.join(accounts)}")
