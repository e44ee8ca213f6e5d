"""Comparing a freshly hydrated query with its records in the CVR file, and recording the difference.

So a query that had stopped can run again: clients that have its rows get exactly what has changed meanwhile. Rows are
compared by their version, which the replica stores with each row.
"""

from __future__ import annotations

from collections.abc import Iterator

from reference_cache.view_syncer.cvr.file import CvrFile
from reference_cache.view_syncer.cvr.records import RecordStore, RowPatch
from reference_cache.view_syncer.pipelines.live_query import LiveQuery
from reference_cache.view_syncer.pipelines.pacing import Pace

BATCH = 1000
"""Records written in one transaction."""


class Recording:
    """Writes the records of queries, with pauses between transactions.

    May be cancelled at any await: what is recorded by then is correct, and the rest is a difference the next time.
    """

    def __init__(self, file: CvrFile, pace: Pace) -> None:
        self.store = RecordStore(file)
        self._file = file
        self._pace = pace

    async def record_hydration(self, live: LiveQuery, version: str) -> list[RowPatch]:
        """Bring the records of a just hydrated query up to date at this version of the data; returns the difference.

        A query that is not large is recorded in one transaction.
        """
        patches = await self.find_differences(live)
        await self.record(live, patches, version)
        return patches

    async def find_differences(self, live: LiveQuery) -> list[RowPatch]:
        """Load the query's number, epoch and versions from the file; returns the patches that its records lack."""
        self.store.load(live)
        known = dict(await self._pace.collected(self.store.rows_of(live))) if live.last_patch else {}
        return await self._pace.collected(_differences(live, known))

    async def record_new(self, live: LiveQuery, patches: list[RowPatch], version: str) -> None:
        """Record the rows of a query that no client has had yet, at a version that may be older than the file's.

        The query is not settled: `record` must follow, with what has changed since.
        """
        for batch in _batches(patches):
            await self._write_batch(live, batch, version)

    async def record(self, live: LiveQuery, patches: list[RowPatch], version: str) -> None:
        """Record the patches that the records of a query lack, and that they are complete from this version on."""
        *before, last = _batches(patches)
        for batch in before:
            await self._write_batch(live, batch, version)
        with self._file.transaction(version):
            self.store.enter(live)
            self.store.write(live, version, last)
            if patches and live.settled == version:
                # The same data, but another set of rows: which of many children an EXISTS references depends on earlier
                # changes. A cookie of this version does not show whether its client has the old set or the new one;
                # the epoch does.
                live.epoch += 1
            self.store.settle(live, None)

    async def _write_batch(self, live: LiveQuery, batch: list[RowPatch], version: str) -> None:
        with self._file.transaction(version):
            self.store.enter(live)
            self.store.write(live, version, batch)
        await self._pace.pause()


def _batches(patches: list[RowPatch]) -> list[list[RowPatch]]:
    """Split patches into batches of at most BATCH; always at least one batch."""
    return [patches[start : start + BATCH] for start in range(0, len(patches), BATCH)] or [[]]


def _differences(live: LiveQuery, known: dict[tuple[str, str], str]) -> Iterator[RowPatch]:
    """What the records lack; removes the rows it has seen from `known` (row version by table and key)."""
    keys = live.keys
    for row_id, row in live.rows.items():
        table = row_id[0]
        key = keys[table].text(row)
        if not known or known.pop((table, key), None) != row[-1]:
            yield RowPatch(row_id, key, row)
    for table, key in known:
        yield RowPatch(keys.row_id(table, key), key, None)
