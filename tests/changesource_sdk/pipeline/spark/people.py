"""A table of people in a JSON file, and SQL mappings of it: importable by tasks."""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from changesource_sdk.adapter import (
    Change,
    Delete,
    Insert,
    Position,
    Row,
    RowsPartition,
    Snapshot,
    Table,
    Transaction,
    Update,
)
from changesource_sdk.observe.warnings import clear, warn
from changesource_sdk.pipeline.mapping.declare import Sql, TableMapping
from changesource_sdk.schema import Column
from service_kit.logs import logger
from tests.changesource_sdk.pipeline.spark.stores import hang_up, once

PERSON = Table(
    "person",
    [
        Column("id", int),
        Column("name", str),
        Column("age", int),
        Column("born", "timestamptz"),
        Column("tags", dict),
    ],
)


@dataclass(frozen=True, slots=True)
class PeopleFile:
    """The store: a file of JSON lines, each one transaction, each a list of [verb, row, former row]."""

    folder: Path

    def commit(self, *changes: tuple[str, Row, Row | None]) -> None:
        with (self.folder / "people").open("a") as file:
            file.write(json.dumps(changes) + "\n")

    def transactions(self) -> list[list[tuple[str, Row, Row | None]]]:
        file = self.folder / "people"
        # A line that is being written is not yet a transaction.
        lines = file.read_text().split("\n")[:-1] if file.exists() else []
        return [json.loads(line) for line in lines]


def _change(verb: str, row: Row, former: Row | None) -> Change:
    match verb:
        case "insert":
            return Insert("person", row)
        case "update":
            return Update("person", row, former)
        case _:
            return Delete("person", row)


class PeopleAdapter:
    """Positions are numbers of transactions; the snapshot is the first `snapshot_after` of them, in two partitions.

    A file `kill` or `fail` in the folder is an order to whoever reads changes next.
    """

    poll_interval = 0.005

    def __init__(self, folder: str, snapshot_after: int = 1) -> None:
        self.file = PeopleFile(Path(folder))
        self.snapshot_after = snapshot_after

    def tables(self) -> Sequence[Table]:
        return [PERSON]

    def snapshot(self) -> Snapshot:
        rows: dict[object, Row] = {}
        for transaction in self.file.transactions()[: self.snapshot_after]:
            for verb, row, former in transaction:
                rows.pop((former or row)["id"], None)
                if verb != "delete":
                    rows[row["id"]] = row
        held = list(rows.values())
        return Snapshot(self.snapshot_after, [RowsPartition("person", held[::2]), RowsPartition("person", held[1::2])])

    def changes(self, after: Position) -> Iterator[Transaction]:
        assert isinstance(after, int)
        once(self.file.folder / "kill", lambda: os.kill(os.getpid(), signal.SIGKILL))
        once(self.file.folder / "fail", hang_up)
        for position, changes in enumerate(self.file.transactions()[after:], start=after + 1):
            yield Transaction(position, [_change(*change) for change in changes])

    def acknowledge(self, position: Position) -> None:
        (self.file.folder / "acknowledged").write_text(str(position))


@dataclass(frozen=True, slots=True)
class OddRows:
    """A partition that warns by a logger that the package knows nothing of."""

    partition: RowsPartition

    @property
    def table(self) -> str:
        return self.partition.table

    def rows(self) -> Iterable[Row]:
        logging.getLogger("some.store").warning("a row looks %s", "odd")
        return self.partition.rows()


class GrumblingAdapter(PeopleAdapter):
    """Warns while there is a file `grumble`, and says when that is over."""

    is_grumbling = False

    def snapshot(self) -> Snapshot:
        found = super().snapshot()
        parts = [OddRows(part) for part in found.partitions if isinstance(part, RowsPartition)]
        return Snapshot(found.position, parts)

    def changes(self, after: Position) -> Iterator[Transaction]:
        before, self.is_grumbling = self.is_grumbling, (self.file.folder / "grumble").exists()
        if self.is_grumbling:
            warn(logger("people"), "grumble", "changes", "not today", holds="table")
        elif before:
            clear(logger("people"), "grumble", "changes", "never mind")
        return super().changes(after)


class HeldUpAdapter(PeopleAdapter):
    """Does not answer while there is a file `hang`; fails after a moment while there is a file `flap`."""

    answers = 0  # of this adapter; another one is made after each failure

    def changes(self, after: Position) -> Iterator[Transaction]:
        while (self.file.folder / "hang").exists():
            time.sleep(0.1)
        self.answers += 1
        if self.answers > 20 and (self.file.folder / "flap").exists():
            hang_up()
        return super().changes(after)


ALL_AGES = {"person": TableMapping(filter=Sql("age >= 0"))}
