"""What a hostile or broken neighbour does to a running endpoint: a clear answer for it, no harm to the others."""

from __future__ import annotations

import os
import re
import resource
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from websockets.frames import CloseCode

from tests.support.fakes.raw_consumer import RawConsumer, Refused
from tests.support.fixtures.serving import MakeServing, MakeStore, servings
from tests.support.peers.serving import Serving
from tests.support.waiting import until
from tests.support.workloads.sqlite_store import SqliteStore

TABLE = "CREATE TABLE item (id INTEGER PRIMARY KEY, body TEXT)"
ROWS = 40_000
KEY = "correct horse"
MEGABYTE = 1 << 20
REFUSALS = (CloseCode.PROTOCOL_ERROR, CloseCode.UNSUPPORTED_DATA, CloseCode.INVALID_DATA, CloseCode.MESSAGE_TOO_BIG)
PORT_IN_USE, STATE_PROBLEM = 5, 4


class Shared:
    """One endpoint for the cases that must not harm it, and a way to see that it is unharmed."""

    def __init__(self, store: SqliteStore, endpoint: Serving) -> None:
        self.store, self.endpoint = store, endpoint
        self.url = endpoint.stream_url
        self._number = ROWS

    def snapshot_watermark(self) -> str:
        with RawConsumer(self.url) as consumer:
            return consumer.receive_commits(1).watermark

    def follower(self) -> RawConsumer:
        """A well-behaved consumer that has everything there is."""
        version = self.snapshot_watermark()
        head = str(self.endpoint.status()["log"]["head"])
        consumer = RawConsumer(self.url, last_watermark=version, replica_version=version)
        if head > version:
            consumer.receive_up_to(head)
        return consumer

    def write(self) -> int:
        self._number += 1
        self.store.insert("item", [(self._number, "live")])
        return self._number

    def assert_live(self, follower: RawConsumer) -> None:
        """A new row reaches the follower."""
        commits = follower.counted.commits
        self.write()
        follower.receive_commits(commits + 1)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    folder = tmp_path_factory.mktemp("bad")
    store = SqliteStore(folder / "app.db", TABLE)
    store.insert("item", ((number, "x" * 200) for number in range(ROWS)))
    with servings(folder) as make:
        yield Shared(store, make(store, api_key=KEY).start())


@pytest.mark.parametrize(
    ("path", "status", "named"),
    [
        ("/changes/v9/stream", 404, "v0"),
        ("/changes/v0/strea", 404, "/changes/v0/stream"),
        ("/changes/v0/stream?apiKey=wrong&appID=zero&shardNum=0", 401, "key"),
        ("/changes/v0/stream?appID=zero&shardNum=0", 401, "key"),
        ("/changes/v0/stream?apiKey=KEY&appID=zero", 400, "shardNum"),
        ("/changes/v0/stream?apiKey=KEY&appID=zero&shardNum=minus", 400, "shardNum"),
        ("/changes/v0/stream?apiKey=KEY&appID=Ze-ro&shardNum=0", 400, "appID"),
        ("/changes/v0/stream?apiKey=KEY&appID=zero&shardNum=0&lastWatermark=!&replicaVersion=01", 400, "lastWatermark"),
        ("/changes/v0/stream?apiKey=KEY", 400, "appID"),
    ],
)
def test_a_wrong_request_is_answered_before_any_work_and_says_what_is_wrong(
    shared: Shared, path: str, status: int, named: str
) -> None:
    answered, body = shared.endpoint.upgrade(path.replace("KEY", KEY.replace(" ", "%20")))
    assert answered == status
    assert named in body
    assert KEY not in body


UPSTREAM = {
    "no JSON": "no json",
    "empty array": "[]",
    "too short": '["status"]',
    "bad watermark": '["status",{},{"watermark":"~"}]',
    "unknown tag": '["unknown",{}]',
    "never sent": '["status",{},{"watermark":"zzz"}]',
    "deep nesting": '{"a":' * 5000,
    "binary": b"\x00\xff",
    "oversized": "x" * (4 * MEGABYTE),
}


@pytest.mark.parametrize("message", UPSTREAM.values(), ids=UPSTREAM.keys())
def test_a_malformed_upstream_message_ends_only_its_own_stream(shared: Shared, message: str | bytes) -> None:
    with shared.follower() as other, shared.follower() as bad:
        bad.send(message)
        code, reason = bad.receive_close()
        assert code in REFUSALS
        assert reason
        shared.assert_live(other)


def test_a_consumer_that_never_reads_holds_nobody_up_and_takes_no_memory(shared: Shared) -> None:
    before = shared.endpoint.process.peak_memory()
    sleepers = [RawConsumer(shared.url, socket_buffer=4096) for _ in range(5)]
    try:
        with shared.follower() as other:
            shared.assert_live(other)
        assert shared.endpoint.process.peak_memory() - before < 50 * MEGABYTE
    finally:
        for sleeper in sleepers:
            sleeper.close()


def test_a_storm_of_reconnects_neither_leaks_nor_floods_the_log(shared: Shared) -> None:
    process = shared.endpoint.process
    with shared.follower() as other:
        lines, files = len(process.lines), process.open_files()
        version = shared.snapshot_watermark()
        with ThreadPoolExecutor(4) as pool:
            outcomes = list(pool.map(lambda number: _visit(shared, version, number % 2 == 0), range(2000)))
        assert outcomes == [401, 101] * 1000
        shared.assert_live(other)
        until(lambda: process.open_files() <= files + 3, "descriptors given back")
        assert len(process.lines) - lines < 200


def _visit(shared: Shared, version: str, wrong_key: bool) -> int:
    """Connect and go at once; the HTTP status of the answer."""
    try:
        RawConsumer(shared.url.replace("correct", "wrong") if wrong_key else shared.url, last_watermark=version).close()
    except Refused as refused:
        return refused.status
    return 101


def test_a_port_in_use_is_said_and_the_first_endpoint_goes_on(shared: Shared, tmp_path: Path) -> None:
    with servings(tmp_path) as make:
        second = make(SqliteStore(tmp_path / "other.db", TABLE), port=shared.endpoint.port)
        assert second.launch().wait() == PORT_IN_USE
        said = second.process.tail()
    assert re.search(r"error\[[a-z-]+\]", said)
    assert str(shared.endpoint.port) in said
    assert "fix:" in said
    assert "Traceback" not in said
    with shared.follower() as other:
        shared.assert_live(other)


def test_a_read_only_state_folder_is_refused_with_a_clear_message(
    store: MakeStore, serving: MakeServing, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o555)
    endpoint = serving(store(TABLE), state=state)
    # Root may write anywhere; without these capabilities it is bound by permissions like everyone else.
    wrapper = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    assert endpoint.launch(wrapper=wrapper).wait() == STATE_PROBLEM
    said = endpoint.process.tail()
    assert re.search(r"error\[[a-z-]+\]", said)
    assert str(state) in said.replace("\n", "")
    assert "fix:" in said
    assert "Traceback" not in said


def test_a_corrupt_log_is_set_aside_and_a_higher_watermark_follows(store: MakeStore, serving: MakeServing) -> None:
    data = store(TABLE, "INSERT INTO item VALUES (1, 'one')")
    endpoint = serving(data).start()
    with RawConsumer(endpoint.stream_url) as consumer:
        before = consumer.receive_commits(1).watermark
    endpoint.stop()
    log = endpoint.state / "log.sqlite"
    log.write_bytes(b"\xa5" * log.stat().st_size)
    endpoint.start()
    with RawConsumer(endpoint.stream_url) as consumer:
        assert consumer.receive_commits(1).watermark > before
    assert list(endpoint.state.glob("log.sqlite.corrupt-*"))
    endpoint.process.wait_for_line("corrupt")


def test_a_full_disk_is_reported_and_nothing_is_lost_when_there_is_room_again(
    store: MakeStore, serving: MakeServing
) -> None:
    data = store(TABLE, "INSERT INTO item VALUES (0, 'zero')")
    endpoint = serving(data).start()
    with RawConsumer(endpoint.stream_url) as consumer:
        version = consumer.receive_commits(1).watermark
    endpoint.process.limit(resource.RLIMIT_FSIZE, 2 * MEGABYTE)
    for number in range(1, 41):
        data.insert("item", [(number * 100 + row, "x" * 1000) for row in range(100)])
    until(lambda: _failing(endpoint), "the pipeline's report of the full disk")
    assert endpoint.ready(), "what is already in the log is still served"

    endpoint.process.limit(resource.RLIMIT_FSIZE, resource.RLIM_INFINITY)
    data.insert("item", [(1_000_000, "last")])
    with RawConsumer(endpoint.stream_url, last_watermark=version, keep=True) as consumer:
        seen = _inserted_until(consumer, 1_000_000)
    assert seen == sorted(seen)
    assert seen == [number for (number,) in sqlite3.connect(data.path).execute("SELECT id FROM item WHERE id > 0")]


def _failing(endpoint: Serving) -> bool:
    return any(stage["error"] for stage in endpoint.status()["stages"].values())


def _inserted_until(consumer: RawConsumer, last: int) -> list[int]:
    """The ids of all inserts up to and including this one."""
    seen: list[int] = []
    deadline = time.monotonic() + 120
    while last not in seen:
        assert time.monotonic() < deadline, f"only {len(seen)} rows came"
        seen += [message[1]["new"]["id"] for message in consumer.messages() if message[0] == "data"]
    return seen
