"""What an idle client group with a query of its own holds, as Python counts it."""

from __future__ import annotations

import gc
import tracemalloc

from protocol.sync.errors import SyncError
from protocol.sync.messages import InitConnection
from reference_cache.view_syncer.api import ClientInfo, Outgoing
from tests.reference_cache.view_syncer.clients import SCHEMA, named
from tests.reference_cache.view_syncer.conftest import Setup, equals, issue

GROUPS = 20
ROWS = 100
MOST_BYTES_PER_ROW = 300
MOST_BYTES_BESIDE = 10_000
"""For the group, its configuration and its pipeline."""


class Deaf:
    """A client that keeps nothing."""

    is_open = True

    def send(self, outgoing: Outgoing) -> None:
        pass

    def fail(self, error: SyncError) -> None:
        raise error


async def join(setup: Setup, number: int) -> None:
    message = InitConnection.model_validate({"desiredQueriesPatch": [named(f"owned by {number}")]})
    message = message.model_copy(update={"client_schema": SCHEMA})
    await setup.syncer.connect(ClientInfo(f"c{number}", f"g{number}"), message, Deaf())


async def test_a_group_holds_little_more_than_its_rows(setup: Setup) -> None:
    for number in range(GROUPS + 1):
        setup.app.queries[f"owned by {number}"] = {"table": "issue", "where": equals("owner", f"owner {number}")}
        rows = [issue(f"issue {number}/{row}", f"owner {number}", row / 7) for row in range(ROWS)]
        await setup.commit(*(("put", "issue", row) for row in rows))
    await join(setup, GROUPS)  # what the first one costs is not a group's
    tracemalloc.start()
    try:
        for number in range(GROUPS):
            await join(setup, number)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert setup.syncer.status().rows == ROWS * (GROUPS + 1)
    assert held / GROUPS < ROWS * MOST_BYTES_PER_ROW + MOST_BYTES_BESIDE
