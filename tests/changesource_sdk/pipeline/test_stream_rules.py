"""Whatever the encoder accepts, the protocol's checker finds no fault with; the two share no code."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from changesource_sdk.adapter import (
    AddColumn,
    AlterColumn,
    Change,
    CreateIndex,
    CreateTable,
    Delete,
    DropColumn,
    DropIndex,
    DropTable,
    Insert,
    RenameTable,
    Truncate,
    Update,
)
from changesource_sdk.errors import InvalidChange
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.schema import Column, Default, Index, Table
from tests.changesource_sdk.pipeline.stream_fixtures import Stream

NAMES = ("a", "b", "A", "s.a", "a_pkey", "sqlite_x")
COLUMNS = ("id", "x", "y", "X", "_0_version")
TYPES = ("int8", "text", "float8", "bool", "json", "uuid", "timestamptz", "text[]", "bytea", "bad|type")
VALUES: tuple[object, ...] = (None, 0, 5, -1.5, True, "text", "7", 2**63, float("nan"), {"a": 1}, ["x"], b"b", "\ud800")
DEFAULTS: tuple[Default, ...] = (None, None, 1, "x", "it's", 1.5, "two\nlines")

STORE_S_AFFAIR = ("old-key", "full-row")
"""Which rows exist, and whether an omitted column is unchanged, only the store knows; this author does not."""


class Author:
    """Makes changes that are often right and often not."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def column(self) -> Column:
        pick = self.chance.choice
        return Column(pick(COLUMNS), pick(TYPES), optional=pick((True, False)), default=pick(DEFAULTS))

    def table(self) -> Table:
        columns = [Column("id", self.chance.choice(("int8", "text")))]
        columns += [self.column() for _ in range(self.chance.randint(0, 2))]
        index = Index(
            self.chance.choice(("i", "j", "a")), [self.chance.choice(COLUMNS)], unique=self.chance.random() < 0.5
        )
        return Table(self.chance.choice(NAMES), columns, indexes=[index] if self.chance.random() < 0.3 else [])

    def row(self, schema: ConsumerSchema, name: str) -> dict[str, object]:
        table = schema.tables.get(name)
        columns = table.column_names if table else COLUMNS[:2]
        return {c: self.value(table.column(c) if table else None) for c in columns if self.chance.random() < 0.95}

    def value(self, column: Column | None) -> object:
        fitting = {"int8": 5, "text": "t", "float8": 1.5, "bool": True, "json": {"a": None}, "text[]": ["t"]}
        if column is not None and column.data_type in fitting and self.chance.random() < 0.9:
            return fitting[column.data_type]
        return self.chance.choice(VALUES)

    def change(self, schema: ConsumerSchema) -> Change:
        pick = self.chance.choice
        name = pick(tuple(schema.tables) or NAMES) if self.chance.random() < 0.95 else pick(NAMES)
        index = pick(tuple(schema.indexes) or ("i",))
        makers: tuple[Callable[[], Change], ...] = (
            *[lambda: Insert(name, self.row(schema, name))] * 4,
            lambda: Update(name, self.row(schema, name)),
            lambda: Update(name, self.row(schema, name), old_key={"id": pick(VALUES)}),
            lambda: Delete(name, {"id": pick(VALUES)}),
            lambda: Truncate([name]),
            lambda: CreateTable(self.table()),
            lambda: DropTable(name),
            lambda: RenameTable(name, pick(NAMES)),
            lambda: AddColumn(name, self.column()),
            lambda: AlterColumn(name, pick(COLUMNS), self.column()),
            lambda: DropColumn(name, pick(COLUMNS)),
            lambda: CreateIndex(Index(pick(("i", "j", "k", "a")), [pick(COLUMNS)], pick((True, False)), table=name)),
            lambda: DropIndex(index),
        )
        return pick(makers)()


@pytest.mark.parametrize("seed", range(25))
def test_an_accepted_stream_breaks_no_rule(seed: int) -> None:
    author, stream = Author(seed), Stream()
    accepted = refused = 0
    for _ in range(120):
        try:
            stream.commit(*(author.change(stream.encoder.schema) for _ in range(author.chance.randint(1, 2))))
            accepted += 1
        except InvalidChange:
            refused += 1
    assert accepted > 10
    assert refused > 10
    assert [violation for violation in stream.violations() if violation.rule not in STORE_S_AFFAIR] == []
