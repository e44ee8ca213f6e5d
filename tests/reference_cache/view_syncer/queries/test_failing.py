"""A query that cannot be built, or cannot take a change, costs nobody but those who asked for it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from protocol.sync.errors import ErrorKind, SyncError
from tests.reference_cache.view_syncer.clients import Client, named
from tests.reference_cache.view_syncer.conftest import Setup, issue, related


def exists(table: str, parent: str, child: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "correlatedSubquery",
        "op": "EXISTS",
        "related": related(table, parent, child, **more),
        "flip": False,
    }


HALF_BUILT = {
    "table": "issue",
    "where": exists(
        "comment",
        "id",
        "issue",
        where=exists("label", "issue", "issue", related=[related("label", "issue", "issue")]),
    ),
}


def readers(setup: Setup) -> int:
    evaluations = setup.syncer._services.pipelines._evaluations.values()
    return sum(len(list(each.engine.source(table).connections)) for each in evaluations for table in each.stores)


async def test_a_query_that_cannot_be_built_leaves_no_part_of_a_pipeline_behind(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    setup.app.queries["bad"] = HALF_BUILT
    healthy = Client("ann", "g1")
    await healthy.connect(setup.syncer, [named("all")])
    before = readers(setup)
    with pytest.raises(SyncError, match="start or related"):
        await Client("eve", "g2").connect(setup.syncer, [named("bad")])
    assert readers(setup) == before
    with caplog.at_level(logging.WARNING):
        await setup.commit(("put", "issue", issue("1")), ("put", "comment", {"id": "c", "issue": "1", "text": "x"}))
    assert caplog.records == []
    assert ("issue", '{"id":"1"}') in healthy.rows


async def test_a_query_that_a_change_breaks_is_stopped_alone(setup: Setup) -> None:
    healthy, unlucky = Client("ann", "g1"), Client("bob", "g2")
    await healthy.connect(setup.syncer, [named("all")])
    await unlucky.connect(setup.syncer, [named("talk")])
    talk = next(live for live in setup.syncer._services.pipelines.live.values() if live.query.related)

    def fail(*_: object) -> None:
        raise TypeError("cannot compare apples with pears")

    talk.pipeline.input.set_output(fail)
    await setup.commit(("put", "issue", issue("1")))
    assert [error.kind for error in unlucky.errors] == [ErrorKind.INTERNAL]
    assert healthy.errors == []
    assert ("issue", '{"id":"1"}') in healthy.rows
    assert [live.query.table for live in setup.syncer._services.pipelines.live.values()] == ["issue"]
    again = Client("bob", "g2")
    await again.connect(setup.syncer, [named("talk")])
    assert ("issue", '{"id":"1"}') in again.rows


async def test_two_meanings_of_one_alias_break_no_query_but_their_own(setup: Setup) -> None:
    clash = related("issue", "issue", "id")
    setup.app.queries["clash"] = {
        "table": "comment",
        "where": {
            "type": "correlatedSubquery",
            "op": "EXISTS",
            "related": related("issue", "text", "owner"),
            "flip": True,
        },
        "related": [clash],
    }
    await setup.commit(
        *(("put", "issue", issue(str(number))) for number in range(3)),
        *(("put", "comment", {"id": str(number), "issue": "1", "text": "ann"}) for number in range(3)),
    )
    healthy, eve = Client("ann", "g1"), Client("eve", "g2")
    await healthy.connect(setup.syncer, [named("all")])
    await eve.connect(setup.syncer, [named("clash")])
    before = setup.syncer._services.pipelines.live
    await setup.commit(("del", "issue", issue("0")), ("del", "issue", issue("2")), ("del", "issue", issue("1")))
    assert [error.kind for error in eve.errors] == [ErrorKind.INTERNAL]
    assert healthy.errors == []
    assert healthy.rows == {}
    assert len(before) == 1
