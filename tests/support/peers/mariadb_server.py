"""A scratch MariaDB server: its own data folder, its own free port, gone when closed.

Place in the flow: the application server's store for MySQL and MariaDB is tested on it; the fixture `mariadb` holds one
for the whole test run. Contract: never runs as root (when we are root, an existing unprivileged account runs it), and
is stopped by its process id. Durability is switched off: nothing outlives the run.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path

import pymysql
from pymysql.cursors import DictCursor

from tests.support.peers.postgres_server import unprivileged_account
from tests.support.ports import free_port
from tests.support.tools import MissingTool, mariadb_programs

ACCOUNTS = ("mysql", "nobody")
USER, PASSWORD = "changesource", "secret"
READY_LINE = "ready for connections"
READY_SECONDS = 120
OPTIONS = (
    "--no-defaults",
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-buffer-pool-size=32M",
    "--innodb-log-file-size=16M",
    "--sync-binlog=0",
    "--skip-log-bin",
    "--max-connections=200",
)


class MariadbServer:
    """One running server; `url(database)` is valid until `close()`."""

    def __init__(self) -> None:
        self.port = free_port()
        self._account = unprivileged_account("MariaDB", ACCOUNTS)
        self._folder = Path(tempfile.mkdtemp(prefix="changesource-mariadb-"))
        # The server; set by `_start`.
        self._process: subprocess.Popen[str] | None = None
        # What it has printed; appended by the thread that reads it.
        self._log: list[str] = []
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> MariadbServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def url(self, database: str = "") -> str:
        return f"mysql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str | None = None) -> pymysql.Connection[DictCursor]:
        """A connection that commits every statement."""
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            password=PASSWORD,
            database=database,
            autocommit=True,
            cursorclass=DictCursor,
        )

    def create_database(self, prefix: str = "db") -> str:
        """Create an empty database and return its name."""
        name = f"{prefix}_{secrets.token_hex(4)}"
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE `{name}`")
        return name

    def close(self) -> None:
        """Stop at once (nothing in it matters) and remove the data folder."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(READY_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> None:
        server, install = mariadb_programs()
        data = self._folder / "data"
        if self._account is not None:
            os.chown(self._folder, self._account.pw_uid, self._account.pw_gid)
        user = self._account and self._account.pw_uid
        group = self._account and self._account.pw_gid
        options = ["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]
        made = subprocess.run(
            [install, *options, f"--datadir={data}"],
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
            user=user,
            group=group,
        )
        if made.returncode != 0:
            raise MissingTool(f"{install.name} failed: {made.stdout}{made.stderr}")
        accounts = self._folder / "accounts.sql"
        accounts.write_text(
            f"CREATE USER '{USER}'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON *.* TO '{USER}'@'127.0.0.1';\nFLUSH PRIVILEGES;\n"
        )
        os.chmod(accounts, 0o644)
        paths = [f"--datadir={data}", f"--socket={self._folder / 'socket'}", f"--pid-file={self._folder / 'pid'}"]
        self._process = subprocess.Popen(
            [server, *OPTIONS, *paths, f"--port={self.port}", f"--init-file={accounts}"],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            user=user,
            group=group,
        )
        settled = threading.Event()
        threading.Thread(target=self._read_log, args=(self._process, settled), daemon=True).start()
        if not settled.wait(READY_SECONDS) or self._process.poll() is not None:
            raise MissingTool("MariaDB did not start:\n" + "".join(self._log[-40:]))

    def _read_log(self, process: subprocess.Popen[str], settled: threading.Event) -> None:
        """Keep what the server prints; it has settled once it is ready or gone."""
        assert process.stderr is not None
        for line in process.stderr:
            self._log.append(line)
            if READY_LINE in line:
                settled.set()
        process.wait()
        settled.set()
