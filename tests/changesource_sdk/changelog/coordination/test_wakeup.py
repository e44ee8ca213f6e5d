"""Readers are woken when the log moves, in every store."""

from __future__ import annotations

import pickle
import threading

from tests.changesource_sdk.changelog.log_fixtures import begin_generation, transaction
from tests.changesource_sdk.changelog.logs_under_test import LogUnderTest

PATIENCE_S = 60.0


def test_an_append_and_a_new_generation_wake_every_listener(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    listeners = [log.listener(), log.listener()]
    for listener in listeners:
        listener.wait(PATIENCE_S if log.kind == "postgres" else 0.0)  # it rings once when it has begun to listen
        listener.drain()
    writer.append([transaction(1)])
    assert all(listener.wait(PATIENCE_S) for listener in listeners)
    begin_generation(writer, log.state)
    assert all(listener.wait(PATIENCE_S) for listener in listeners)


def test_what_is_appended_twice_wakes_nobody(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    writer.append([transaction(1)])
    listener = log.listener()
    listener.wait(PATIENCE_S if log.kind == "postgres" else 0.0)
    listener.drain()
    writer.append([transaction(1)])
    assert not listener.wait(0.2)


def test_what_a_wake_up_announces_can_be_read(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    listener, reader = log.listener(), log.reader()
    seen: list[str] = []

    def follow() -> None:
        while len(seen) < 50:
            listener.wait(PATIENCE_S)
            seen.extend(stored.watermark for stored in reader.read_after(seen[-1] if seen else "00", 1 << 20))

    follower = threading.Thread(target=follow)
    follower.start()
    marks = [writer.append([transaction(n)])[0] for n in range(1, 51)]
    follower.join(PATIENCE_S)
    assert seen == marks


def test_a_store_that_was_sent_to_another_process_is_the_same_log(log: LogUnderTest) -> None:
    head = log.writer_with_generation().append([transaction(1)])[0]
    sent = pickle.loads(pickle.dumps(log.store))
    sent.requests.ask_snapshot(head, "from afar")
    reader = sent.open_log()
    assert reader.state().head == head
    assert log.store.requests.pending_snapshot() == sent.requests.pending_snapshot()
    reader.close()
    sent.close()
