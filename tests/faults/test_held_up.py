"""A source that is held up is said to be, in every lane: the verdict follows it within seconds of the promised 30."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.changesource_sdk.pipeline.spark.people import PeopleFile
from tests.support.peers.serving import Serving
from tests.support.peers.spark_serving import LOCAL, QUICK_START, SPARK_SECONDS
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

HELD_UP = "tests.changesource_sdk.pipeline.spark.people:HeldUpAdapter"
ON_SPARK = ("--runner", "spark", "--master", LOCAL, *QUICK_START)
LANES = {
    "inline": ("--runner", "inline"),
    "resident": ON_SPARK,
    "micro-batch": (*ON_SPARK, "--mappings", "tests.changesource_sdk.pipeline.spark.people:ALL_AGES"),
}


def _stage(endpoint: Serving) -> dict[str, Any]:
    return dict(endpoint.status()["stages"]["pipeline"])


def _verdict(endpoint: Serving) -> str:
    return str(_stage(endpoint)["verdict"])


@pytest.mark.parametrize("lane", LANES)
def test_the_verdict_follows_a_source_that_hangs_and_one_that_fails_again_and_again(tmp_path: Path, lane: str) -> None:
    file = PeopleFile(tmp_path)
    file.commit(("insert", {"id": 1, "name": "Ada", "age": 36, "born": 0.0, "tags": {}}, None))
    options = ("--permissions", "allow-all", *LANES[lane])
    with ExitStack() as stack:
        endpoint = stack.enter_context(Serving(HELD_UP, {"folder": str(tmp_path)}, tmp_path / "state", options=options))
        endpoint.start(seconds=SPARK_SECONDS)
        stack.callback(lambda: print(endpoint.process.tail(60), endpoint.status()))
        # Once it has answered, a source that does not is known to be held up.
        file.commit(("insert", {"id": 2, "name": "Bob", "age": 7, "born": 0.0, "tags": {}}, None))
        until(lambda: _stage(endpoint)["transactions"] and _verdict(endpoint) == "ok", "the tail", seconds=240)

        (tmp_path / "hang").touch()
        began = time.monotonic()
        until(lambda: _verdict(endpoint) == "stuck", "the verdict", seconds=120)
        assert 20 < time.monotonic() - began < 90
        (warning,) = [each for each in endpoint.status()["warnings"] if each["current"]]
        assert (warning["code"], warning["holds"]) == ("source-not-answering", "stream")
        until(lambda: any("code=source-not-answering" in line for line in endpoint.process.lines), "the line")
        (tmp_path / "hang").unlink()
        until(lambda: _verdict(endpoint) == "ok", "the end of it", seconds=60)

        (tmp_path / "flap").touch()
        until(lambda: _verdict(endpoint) == "failing", "the error", seconds=60)
        restarts = _stage(endpoint)["restarts"]
        while _stage(endpoint)["restarts"] < restarts + 3:
            assert _verdict(endpoint) == "failing", "it was said to be well between two failures"
        (tmp_path / "flap").unlink()
        until(lambda: _verdict(endpoint) == "ok", "the end of it", seconds=120)
