"""The example adapter under the suite: a Git repository, written to by commits."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from changesource_sdk import Change, Delete, Insert, Update
from changesource_sdk.testing.conformance import Harness
from examples.git_tickets.git_tickets import GitTickets

AUTHOR = ("-c", "user.name=Someone", "-c", "user.email=someone@example.org", "-c", "gc.auto=0", "-c", "core.fsync=none")


def git(path: Path, *arguments: str) -> None:
    subprocess.run(["git", *AUTHOR, "-C", str(path), *arguments], check=True, capture_output=True)


class GitHarness(Harness):
    adapter = GitTickets
    patience = 60.0
    lacks = ("schema changes", "acknowledge")

    def create(self, folder: Path) -> None:
        self.path = folder
        git(folder, "init", "-q", "-b", "main")
        self.commit([])

    def settings(self) -> Mapping[str, object]:
        return {"path": str(self.path)}

    def commit(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._write(change)
        git(self.path, "add", "-A")
        git(self.path, "commit", "-q", "--allow-empty", "--no-verify", "-m", "changed")

    def _write(self, change: Change) -> None:
        match change:
            case Insert(_, row):
                self._save(row)
            case Update(_, row, old_key):
                file = self._file(old_key or row)
                old = json.loads(file.read_text())
                file.unlink()
                self._save({**old, **row})
            case Delete(_, key):
                self._file(key).unlink()
            case _:
                raise NotImplementedError(type(change).__name__)

    def _save(self, row: Mapping[str, object]) -> None:
        file = self._file(row)
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({name: value for name, value in row.items() if name != "id"}))

    def _file(self, row: Mapping[str, object]) -> Path:
        return self.path / "tickets" / f"{row['id']}.json"
