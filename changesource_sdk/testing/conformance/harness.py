"""What the author of an adapter gives the suite: an empty store, how to write to it, and the adapter's settings.

    class NotesHarness(Harness):
        adapter = NotesAdapter
        lacks = ("schema changes",)

        def create(self, folder): ...            # an empty store, in this folder or elsewhere
        def settings(self): ...                  # what the adapter is made with
        def commit(self, changes): ...           # write Insert, Update and Delete, all of them as one transaction

Everything else follows from `tables()`: the suite makes rows that suit the declared columns. A store that cannot do
something says so in `lacks`; the cases that need it are then reported as not applicable, with the declared word.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from changesource_sdk.adapter import Adapter, Change, Row, Table
from changesource_sdk.errors import ConfigurationError
from changesource_sdk.testing.conformance import sample_rows
from service_kit.suggestions import nearest

CAPABILITIES: Mapping[str, str] = {
    "writes": "rows can be written by the suite",
    "updates": "a row can be changed",
    "deletes": "a row can be deleted",
    "transactions": "several changes can be committed at once",
    "key changes": "the key of a row can be changed",
    "add column": "a column can be added to a table that has rows",
    "drop column": "a column can be dropped",
    "create table": "a table can be created while the adapter runs",
    "rename column": "a column can be renamed (AlterColumn)",
    "change type": "a column can get another type (AlterColumn)",
    "required column": "a column can be added that is not null and has a default for the rows there are",
    "rename table": "a table can be renamed",
    "drop table": "a table can be dropped",
    "truncate": "all rows of a table can be deleted at once (Truncate)",
    "schema transactions": "schema changes and rows can be committed at once",
    "durable": "the store outlives the process that reads it, and its settings are JSON",
    "acknowledge": "the adapter has acknowledge()",
    "retained": "the harness can report how much the store keeps for the adapter (retained)",
    "forget": "the harness can make the store lose its history (forget)",
}
"""What a store may lack. Without `writes` only the cases that read are run."""

OPTIONAL = (
    "rename column",
    "change type",
    "required column",
    "rename table",
    "drop table",
    "truncate",
    "schema transactions",
)
"""Capabilities that a harness lacks unless `supports` names them."""

SCHEMA_CHANGES = ("add column", "drop column", "create table", *OPTIONAL)
SHORTHANDS: Mapping[str, tuple[str, ...]] = {
    "schema changes": SCHEMA_CHANGES,
    "writes": tuple(name for name in CAPABILITIES if name not in ("durable", "acknowledge")),
    "acknowledge": ("acknowledge", "retained"),
}
"""Words that declare several at once."""


class Harness(ABC):
    """One store for one case. Invariant: `create` comes first, `close` last, and no two cases share a store."""

    adapter: ClassVar[type[Adapter]]
    """The adapter's class; importable by name, since a process that is to be killed imports it."""

    lacks: ClassVar[Collection[str]] = ()
    """Capabilities that the store does not have."""

    supports: ClassVar[Collection[str]] = ()
    """Further capabilities: the schema changes (`OPTIONAL`) that `commit` can write. `schema changes` names all."""

    table: ClassVar[str] = ""
    """The full name of the table to write to; the first that has a key, if none is named."""

    patience: ClassVar[float] = 20.0
    """Seconds to wait for something that should come."""

    @abstractmethod
    def create(self, folder: Path) -> None:
        """Make a store whose tables are empty; `folder` is new and is removed afterwards."""

    @abstractmethod
    def settings(self) -> Mapping[str, object]:
        """The settings that make the adapter read that store."""

    @abstractmethod
    def commit(self, changes: Sequence[Change]) -> None:
        """Write the changes in order, as one transaction that is visible when this returns.

        Columns that an `Update` leaves out keep their value; `old_key` is set when the key changes. Schema changes come
        alone, unless the store has `schema transactions`. Called from several threads, one at a time. Raise for a value
        that the store itself refuses.
        """

    def row(self, table: Table, number: int, version: int) -> Row:
        """A row to write: its key depends on `number` alone, and no two versions are equal.

        Override it for a store that does not take just any value. Columns that are left out are not compared.
        """
        return sample_rows.row(table, number, version)

    def samples(self, table: Table) -> Sequence[Row]:
        """Rows that show what the columns can hold, one row of nulls among them; keys as in `row`, from 0."""
        return sample_rows.samples(table, self.row)

    def retained(self) -> int:
        """How many changes the store keeps for the adapter; only called if `retained` is not lacking."""
        raise NotImplementedError

    def forget(self) -> None:
        """Lose the history of changes, as by a purge or a rotated log, and keep the rows. Positions of before cannot be
        continued then. Only called if it is overridden.
        """
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027  # most stores are files, which go with their folder
        """Close the store. Does nothing by default."""


class ReadingHarness(Harness):
    """A store that exists and is only read: checks an adapter without writing to its store."""

    lacks = ("writes",)

    def __init__(self, adapter: type[Adapter], settings: Mapping[str, object]) -> None:
        self.adapter = adapter  # type: ignore[misc]  # one class serves any adapter
        self._settings = settings

    def create(self, folder: Path) -> None:
        """Does nothing: the store exists."""

    def settings(self) -> Mapping[str, object]:
        """The settings of the constructor."""
        return self._settings

    def commit(self, changes: Sequence[Change]) -> None:
        """Never called: cases that write are not applicable."""
        raise NotImplementedError


def lacking(harness: Harness) -> dict[str, str]:
    """The capabilities that a harness does not have, each with the reason; shorthands are resolved.

    Raises `ConfigurationError` for an unknown word.
    """
    supported = _resolved(harness, "supports", harness.supports)
    missing = {
        name: f"not supported by this harness: let commit() write it, and name {name!r} in `supports`"
        for name in OPTIONAL
        if name not in supported
    }
    for name in ("retained", "forget"):
        if getattr(type(harness), name) is getattr(Harness, name):
            missing[name] = f"not supported by this harness: it has no {name}()"
    return missing | {name: f"declared: lacks {name}" for name in _resolved(harness, "lacks", harness.lacks)}


def _resolved(harness: Harness, attribute: str, words: Collection[str]) -> set[str]:
    resolved: set[str] = set()
    for word in words:
        if word not in CAPABILITIES and word not in SHORTHANDS:
            known = [*CAPABILITIES, *SHORTHANDS]
            raise ConfigurationError(
                "unknown-capability",
                f"{type(harness).__name__}.{attribute} names {word!r}, which is no capability",
                fix=nearest(word, known),
            )
        resolved.update(SHORTHANDS.get(word, (word,)))
    return resolved
