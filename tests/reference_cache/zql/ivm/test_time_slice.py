"""Time slices, and a hydration that pauses by one."""

from typing import Any

from protocol.sync.ast_json import parse
from reference_cache.zql.ivm.change import YIELD
from reference_cache.zql.ivm.time_slice import TimeSlice
from tests.reference_cache.zql.ivm.pipelines import SCHEMA
from tests.support.workloads.tables import Tables
from tests.support.zql.recording_engine import RecordingEngine


class Ticks:
    """A clock that goes one second further each time it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def test_a_slice_stays_expired_until_it_is_restarted() -> None:
    ticks = Ticks()
    pace = TimeSlice(3, ticks)
    assert [pace.expired() for _ in range(5)] == [False, False, True, True, True]
    pace.restart()
    assert not pace.expired()


def test_a_paused_hydration_goes_on_where_it_stopped() -> None:
    rows: dict[str, list[dict[str, Any]]] = {
        "issue": [{"id": f"i{n:03}", "owner": "u", "rank": n} for n in range(200)],
        "comment": [{"id": f"c{n}", "issue": f"i{n:03}", "text": ""} for n in range(0, 200, 2)],
    }
    exists = {
        "type": "correlatedSubquery",
        "op": "EXISTS",
        "related": {
            "correlation": {"parentField": ["id"], "childField": ["issue"]},
            "subquery": {"table": "comment", "alias": "comments"},
        },
    }
    pace = TimeSlice(10, Ticks())
    engine = RecordingEngine(SCHEMA, Tables(SCHEMA, rows, "memory", expired=pace.expired).open_source)
    pauses = found = 0
    for change in engine.start("q", parse({"table": "issue", "where": exists})):
        if change is YIELD:
            pauses += 1
            pace.restart()
        else:
            found += 1
    assert found == 200
    assert pauses >= 2
