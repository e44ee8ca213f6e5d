"""The writing side of a log that several sources share: one writer per source, in whatever process its lane runs.

The pipeline that owns the log (`LogWriter`) has an epoch, and each source has one of its own; both are compared inside
every transaction. So is the head read: writers of other sources move it, and the next watermark is taken from it under
the log's lock. Watermarks of adapters are not used, since each upstream counts for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import orjson

from changesource_sdk.changelog.batch import Batch
from changesource_sdk.changelog.dead_letters import LetterEdit
from changesource_sdk.changelog.log import EncodedTransaction, Log, LogState, LogUpdate, SourceRead, SourceRow
from changesource_sdk.changelog.writer import known_watermarks, state_after
from changesource_sdk.errors import InvalidChange
from changesource_sdk.positions import Position, from_text, of_source, to_text
from protocol import watermark as watermarks
from protocol.specs import replica_name
from protocol.watermark import EMPTY


class SourceWriter:
    """The writer of one source; used from one thread. A later one of the same source, or a later pipeline, fences it
    off: `StaleWriter`. `epoch` is that of the pipeline. `now_us` is the clock, in epoch microseconds.
    """

    def __init__(self, log: Log, source: str, epoch: int, now_us: Callable[[], int]) -> None:
        self._log = log
        self._epoch = epoch
        try:
            # The state of the log when this writer last wrote or opened it, without the schema.
            self._current = log.take_over(EMPTY, source, epoch)
            # The source's row as this writer last wrote it. A newer writer may have taken over since, with its epoch.
            self._row = log.state().sources[source]._replace(epoch=self._current.epoch)
        except BaseException:
            log.close()
            raise
        self._floor = now_us()

    @property
    def row(self) -> SourceRow:
        """The source's row as this writer left it."""
        return self._row

    @property
    def position_key(self) -> str:
        """What qualifies the source's positions in the log."""
        return self._row.position_key

    def state(self) -> LogState:
        """The state of the log as its source sees it: position, schema and epoch are the source's own."""
        row = self._row
        position = None if row.position is None else from_text(row.position)
        return replace(self._current, epoch=row.epoch, position=position, schema=row.schema)

    def sources(self) -> Mapping[str, SourceRow]:
        """All sources of the log as they are now, by name."""
        return self._log.state().sources

    def knows(self, position: Position) -> bool:
        """Whether a transaction with this position, or one beyond it, was appended since the source was read."""
        return bool(known_watermarks(self._log, self.state(), [(of_source(self.position_key, position), position)]))

    def append(self, transactions: Sequence[EncodedTransaction]) -> list[str]:
        """Make all of them durable, or none; the watermark of each. One already there keeps the watermark it has.

        Raises `InvalidChange` if one creates a table that another source has.
        """
        key = self.position_key
        texts = [of_source(key, transaction.position) for transaction in transactions]
        candidates = [(text, each.position) for text, each in zip(texts, transactions, strict=True)]
        known = known_watermarks(self._log, self.state(), candidates)
        batches: list[Batch] = []

        def make(current: LogState) -> LogUpdate:
            batch = self._batch(current)
            batches.append(batch)
            for text, transaction in zip(texts, transactions, strict=True):
                batch.add(replace(transaction, watermark=None), text, known.get(text))
            if batch.last is None:
                return LogUpdate(current)
            schema = self._row.schema if batch.schema is None else batch.schema
            row = self._row._replace(position=to_text(batch.last.position), schema=schema)
            return self._update(current, batch, row, changes_schema=batch.schema is not None)

        self._write(make)
        for segment in batches[0].unneeded:
            segment.path.unlink(missing_ok=True)
        return batches[0].watermarks

    def append_read(self, read: SourceRead) -> str:
        """Append the transaction that replaces all rows of the source; its watermark. Raises `InvalidChange` if another
        source has one of its tables.
        """
        position = of_source(read.row.position_key, read.transaction.position)
        batches: list[Batch] = []

        def make(current: LogState) -> LogUpdate:
            batch = self._batch(current)
            batches.append(batch)
            batch.add(replace(read.transaction, watermark=None), position, None)
            return self._update(current, batch, read.row, changes_schema=True)

        self._write(make)
        return batches[0].head

    def clear_position(self) -> None:
        """Note, durably, that the source must be read again; its tables stay as they are until then."""
        self._write(lambda current: LogUpdate(current, sources=[self._row._replace(position=None)]))

    def _batch(self, current: LogState) -> Batch:
        return Batch(current.head, watermarks.to_int(current.head)[0], self._floor)

    def _update(self, current: LogState, batch: Batch, row: SourceRow, *, changes_schema: bool) -> LogUpdate:
        after = state_after(current, batch)
        schema = merged_schemas(({**self._log.state().sources, row.name: row}).values()) if changes_schema else None
        return LogUpdate(
            after,
            batch.rows,
            batch.segments,
            schema,
            sources=[row],
            letters=[self._own(edit) for edit in batch.letters],
            skips=[replace(skip, source=row.name) for skip in batch.skips],
        )

    def _own(self, edit: LetterEdit) -> LetterEdit:
        letter = edit.letter
        return edit if letter is None else edit._replace(letter=replace(letter, source=self._row.name))

    def _write(self, make: Callable[[LogState], LogUpdate]) -> None:
        written = self._log.write(make, self._epoch, self._row)
        self._current = written.state
        for row in written.sources:
            self._row = row

    def close(self) -> None:
        """Release the log."""
        self._log.close()


def merged_schemas(rows: Iterable[SourceRow]) -> str:
    """The schema of several sources together, as JSON text. Raises `InvalidChange` for a name that two of them have."""
    owners: dict[str, str] = {}
    merged: dict[str, list[dict[str, object]]] = {"tables": [], "indexes": []}
    for row in rows:
        content = orjson.loads(row.schema) if row.schema else {"tables": [], "indexes": []}
        for table in content["tables"]:
            _claim(owners, "table", replica_name(table["schema"], table["name"]), row.name)
        for index in content["indexes"]:
            _claim(owners, "index", index["at"], row.name)
        for part, entries in merged.items():
            entries += content[part]
    return orjson.dumps(merged).decode()


def table_names(schema: str) -> Collection[str]:
    """The names of the tables in a schema, in their order."""
    content = orjson.loads(schema) if schema else {"tables": []}
    return [replica_name(table["schema"], table["name"]) for table in content["tables"]]


def _claim(owners: dict[str, str], kind: str, name: str, source: str) -> None:
    # Tables and indexes share one name space in SQLite, which does not distinguish upper and lower case.
    owner = owners.setdefault(name.lower(), source)
    if owner != source:
        raise InvalidChange(
            "name-in-two-sources",
            f"the {kind} {name} is in the source {owner} and in the source {source}",
            where=f"source {source}",
            fix=f'give one of them a prefix, such as prefix = "{source}_" in [sources.{source}], or rename the table '
            "in its mapping",
        )
