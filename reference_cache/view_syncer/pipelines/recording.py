"""Comparing a freshly hydrated query with what is recorded of it, and recording the difference.

That is how a query that had stopped goes on: whoever had its rows gets exactly what changed meanwhile. Rows are told
apart by their version, which the replica stores with each row.
"""

from __future__ import annotations

from collections.abc import Iterator

from reference_cache.view_syncer.cvr.file import CvrFile
from reference_cache.view_syncer.cvr.records import RecordedQuery, RecordStore
from reference_cache.view_syncer.pipelines.live_query import LiveQuery, Patch
from reference_cache.view_syncer.pipelines.pacing import Pace

BATCH = 1000
"""Records written in one transaction."""


async def record_hydration(live: LiveQuery, file: CvrFile, store: RecordStore, version: str, pace: Pace) -> list[Patch]:
    """Bring the records of a just hydrated query up to date at this version of the data; what was different.

    May be cut short at any point: what is recorded by then is true, and the rest will be found again. A query that is
    not large is recorded in one transaction.
    """
    found, patches = await find_differences(live, store, pace)
    await record(live, found, patches, file, store, version, pace)
    return patches


async def find_differences(live: LiveQuery, store: RecordStore, pace: Pace) -> tuple[RecordedQuery | None, list[Patch]]:
    """What is known of a query, and what its records lack."""
    found = store.find(live.key)
    known = await _known(found, store, pace)
    return found, await pace.collected(_differences(live, known))


async def record_new(
    live: LiveQuery, patches: list[Patch], file: CvrFile, store: RecordStore, version: str, pace: Pace
) -> RecordedQuery:
    """Record the rows of a query that nobody has had yet, at a version that may be older than the file's.

    The query is not settled: `record` must follow, with what happened since.
    """
    found = store.find(live.key)
    for batch in _batches(patches):
        with file.transaction(version):
            found = found or store.enter(live.key)
            store.write(found, version, [patch.change() for patch in batch])
        await pace.pause()
    assert found is not None
    return found


async def record(
    live: LiveQuery,
    found: RecordedQuery | None,
    patches: list[Patch],
    file: CvrFile,
    store: RecordStore,
    version: str,
    pace: Pace,
) -> None:
    """Record what the records of a query lack, and that they are right from this version on."""
    *before, last = _batches(patches)
    for batch in before:
        with file.transaction(version):
            found = found or store.enter(live.key)
            store.write(found, version, [patch.change() for patch in batch])
        await pace.pause()
    with file.transaction(version):
        live.recorded = recorded = found or store.enter(live.key)
        store.write(recorded, version, [patch.change() for patch in last])
        if patches and recorded.settled == version:
            # The same data, another set: which rows stand for an EXISTS is a matter of history. Cookies of this version
            # do not tell those who have seen the old set from those who have seen the new; the epoch does.
            recorded.epoch += 1
        store.settle(recorded, None)


async def _known(found: RecordedQuery | None, store: RecordStore, pace: Pace) -> dict[tuple[str, str], str]:
    if found is None or not found.last_patch:
        return {}
    return dict(await pace.collected(store.rows_of(found)))


def _batches(patches: list[Patch]) -> list[list[Patch]]:
    """The patches, for one transaction each; at least one, though it be empty."""
    return [patches[start : start + BATCH] for start in range(0, len(patches), BATCH)] or [[]]


def _differences(live: LiveQuery, known: dict[tuple[str, str], str]) -> Iterator[Patch]:
    """What the records lack; takes the rows it has seen out of `known`."""
    keys = live.keys
    for row_id, row in live.held.items():
        table = row_id[0]
        key = keys[table].text(row)
        if not known or known.pop((table, key), None) != row[-1]:
            yield Patch(row_id, key, row)
    for table, key in known:
        yield Patch(keys.row_id(table, key), key, None)
