"""Log records that travel: the same on the other side, bounded on the way, from a worker to its driver."""

from __future__ import annotations

import logging
import socket
from typing import Any

import pytest

from changesource_sdk.observe.log_socket import LogReceiver, LogSender
from changesource_sdk.observe.relayed import INTERVAL_S, LINES_PER_KIND, Bounded, SaidOnce, decode, encode
from tests.support.waiting import until


def record(text: str, *arguments: object, name: str = "changesource.kafka", **more: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": name, "levelno": logging.WARNING, "levelname": "WARNING", **more})
    made.msg, made.args = text, arguments or None
    return made


def test_a_record_is_the_same_on_the_other_side() -> None:
    sent = record("%d rows", 3, fields={"table": "t"}, notice={"code": "c"})
    found = decode(encode(sent))
    assert found is not None
    assert (found.name, found.levelno, found.getMessage(), found.created) == (
        "changesource.kafka",
        logging.WARNING,
        "3 rows",
        sent.created,
    )
    assert (found.__dict__["fields"], found.__dict__["notice"]) == ({"table": "t"}, {"code": "c"})
    assert encode(found) == encode(sent), "it may be sent on"


@pytest.mark.parametrize("line", ["", "plain", "{}", '{"changesource-log": "LOUD"}', '{"changesource-log"'])
def test_what_is_no_record_is_none(line: str) -> None:
    assert decode(line) is None


def test_a_flood_of_one_kind_is_cut_short_and_counted() -> None:
    now = [0.0]
    bounded = Bounded(lambda: now[0])
    passed = [bounded.filter(record("set aside", fields={"offset": offset})) for offset in range(100)]
    assert sum(passed) == LINES_PER_KIND
    assert bounded.filter(record("something else"))
    now[0] = INTERVAL_S
    late = record("set aside")
    assert bounded.filter(late)
    assert late.__dict__["fields"] == {"held_back": 100 - LINES_PER_KIND}


def test_texts_of_other_packages_are_bounded_by_their_logger() -> None:
    bounded = Bounded()
    passed = [bounded.filter(record(f"connection {number} lost", name="kafka.conn")) for number in range(100)]
    assert sum(passed) == LINES_PER_KIND


def test_a_worker_s_records_are_logged_by_its_driver(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("changesource"), "propagate", True)
    with LogReceiver("127.0.0.1") as receiver, caplog.at_level(logging.INFO):
        with socket.create_connection((receiver.address.host, receiver.address.port)) as stranger:
            stranger.sendall(b"wrong key\n" + encode(record("not of a worker")).encode() + b"\n")
            assert stranger.recv(1) == b""
        sender = LogSender(receiver.address)
        for number in range(3):
            sender.handle(record("line", fields={"number": number}))
        sender.close()
        until(lambda: len(caplog.records) == 3, "the lines")
    assert [found.__dict__["fields"]["number"] for found in caplog.records] == [0, 1, 2]


def test_a_standing_warning_is_said_once_while_it_holds_whoever_says_it() -> None:
    once = SaidOnce()

    def passes(text: str = "it has no key", **notice: object) -> bool:
        record = logging.LogRecord("changesource.postgres", logging.WARNING, "", 0, text, None, None)
        record.__dict__["notice"] = notice
        return once.filter(record)

    standing: dict[str, Any] = {"code": "not-synced", "where": "table a", "standing": True}
    assert passes(**standing)
    assert not passes(**standing)
    assert passes("it has another reason", **standing)
    assert passes(only="not-synced", where=["table b"], quiet=True)
    assert passes("it has another reason", **standing), "it was over in between"
    assert passes(clears="*", where="table a")
    assert passes("it has another reason", **standing)
    assert all(passes(code="stalled", where="t1") for _ in range(2)), "others are said again while they hold"
