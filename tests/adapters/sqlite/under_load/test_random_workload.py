"""Whatever is written, and whenever the reader dies: the consumer ends up with the database."""

import os
import random
import sqlite3
from pathlib import Path

import pytest

from adapters.sqlite.adapter import SqliteAdapter
from adapters.sqlite.connection import open_database
from adapters.sqlite.settings import Selection
from adapters.sqlite.tail import SqliteTail
from changesource_sdk.adapter import Transaction
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.transactions import TransactionEncoder
from changesource_sdk.positions import Position, from_text, to_text
from tests.adapters.sqlite.under_load.consumer import Consumer, assert_equal
from tests.adapters.sqlite.under_load.workload import Workload

SEEDS = int(os.environ.get("CHANGESOURCE_SQLITE_SEEDS", "12"))
FIRST_SEED = int(os.environ.get("CHANGESOURCE_SQLITE_FIRST_SEED", "0"))
STEPS = int(os.environ.get("CHANGESOURCE_SQLITE_STEPS", "60"))


class Reader:
    """Follows a database as the pipeline does: durable position and consumer move together, and may both be lost.

    Every batch must also pass the pipeline's own validation and encoding.
    """

    def __init__(self, path: str, exact_replace: bool) -> None:
        self.path = path
        self.exact_replace = exact_replace
        self.adapter = SqliteAdapter(path, exact_replace=exact_replace)
        snapshot = self.adapter.snapshot()
        self.position: Position = snapshot.position
        self.schema = ConsumerSchema.of(snapshot.tables or ())
        self.consumer = Consumer.of(snapshot)
        self.restart()

    def restart(self) -> None:
        """Go on from the durable position, as text has kept it."""
        self.adapter = SqliteAdapter(self.path, exact_replace=self.exact_replace)
        selection = Selection(exact_replace=self.exact_replace)
        self.tail = SqliteTail(open_database(self.path), self.path, selection, from_text(to_text(self.position)))

    def read(self, survives: bool = True) -> None:
        """Read all there is; a reader that does not survive read it in vain."""
        before = self.consumer.copy(), self.position, self.schema
        while (batch := self.tail.next_batch()) is not None:
            assert batch.position != self.position
            changes = list(batch.changes)
            self.consumer.apply(changes)
            encoder = TransactionEncoder(self.schema, lambda: Path(f"{self.path}.segment"))
            encoder.encode(Transaction(batch.position, changes))
            self.position, self.schema = batch.position, encoder.schema
        if not survives:
            self.consumer, self.position, self.schema = before
            self.restart()

    def acknowledge(self) -> None:
        self.adapter.acknowledge(self.position)


@pytest.mark.parametrize(("journal", "exact_replace"), [("wal", False), ("wal", True), ("delete", False)])
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_the_consumer_equals_the_database_after_every_batch(
    tmp_path: Path, seed: int, journal: str, exact_replace: bool
) -> None:
    path, chance = str(tmp_path / "app.db"), random.Random(seed)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(f"PRAGMA journal_mode = {journal}")
    db.execute("PRAGMA synchronous = OFF")
    db.execute(f"PRAGMA recursive_triggers = {not exact_replace}")
    workload = Workload(db, seed, free_to_drop=not exact_replace)
    for _ in range(8):
        workload.transaction(schema_share=0.5)
    reader = Reader(path, exact_replace)
    try:
        for _ in range(STEPS):
            workload.transaction()
            if chance.random() < 0.05:
                workload.run("VACUUM")
            if chance.random() < 0.15:
                reader.read(survives=False)
            elif chance.random() < 0.6:
                reader.read()
                assert_equal(reader.consumer, db)
            if chance.random() < 0.3:
                reader.acknowledge()
            if chance.random() < 0.1:
                reader.restart()
        reader.read()
        assert_equal(reader.consumer, db)
    except Exception:
        print(f"seed {seed}:", *workload.log, sep="\n")
        raise
