"""Tickets kept as JSON files in a Git repository: a commit is a transaction, and its hash is the position."""

import io
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from changesource_sdk import Delete, Insert, Snapshot, Transaction, table_of


@dataclass
class Ticket:
    id: str
    title: str
    is_open: bool
    points: int | None = None
    labels: list[str] | None = None


def git(path, *arguments, asked=""):
    return subprocess.check_output(["git", "-C", path, *arguments], input=asked.encode())


@dataclass
class Files:
    path: str
    blobs: dict[str, str]
    table = "ticket"

    def rows(self):
        answer = io.BytesIO(git(self.path, "cat-file", "--batch", asked="\n".join(self.blobs.values())))
        for name in self.blobs:
            size = int(answer.readline().split()[-1])
            yield {"id": Path(name).stem, **json.loads(answer.read(size + 1))}


class GitTickets:
    def __init__(self, path, branch="main"):
        self.path, self.branch = path, branch

    def tables(self):
        return [table_of(Ticket)]

    def snapshot(self):
        head = git(self.path, "rev-parse", self.branch).decode().strip()
        listed = git(self.path, "ls-tree", "-r", "-z", head, "tickets/").decode().split("\0")[:-1]
        blobs = {line.split("\t", 1)[1]: line.split()[2] for line in listed}
        return Snapshot(head, [Files(self.path, dict(list(blobs.items())[share::4])) for share in range(4)])

    def changes(self, after):
        new = f"{after}..{self.branch}"
        for commit in git(self.path, "rev-list", "--first-parent", "--reverse", new).decode().split():
            listed = git(self.path, "diff-tree", "-r", "-z", after, commit, "tickets/").decode().split("\0")
            files = {name: line.split()[3:] for line, name in zip(listed[::2], listed[1::2], strict=False)}
            gone = [Delete("ticket", {"id": Path(name).stem}) for name, (_, kind) in files.items() if kind == "D"]
            kept = Files(self.path, {name: blob for name, (blob, kind) in files.items() if kind != "D"})
            yield Transaction(commit, [*gone, *(Insert("ticket", row) for row in kept.rows())])
            after = commit
