"""Records that cannot be read, from a real broker to a consumer's tables; and how far the log is behind the broker."""

from __future__ import annotations

from pathlib import Path

import orjson

from adapters.kafka import KafkaAdapter
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.endpoint.log_status import status_of_log
from protocol.codec import decode_changes
from protocol.fold.rows import FoldedTables
from protocol.framing import frame
from tests.adapters.kafka.following import an_adapter, begin_at, write
from tests.changesource_sdk.pipeline.runner_fixtures import Watched, running
from tests.support.peers.kafka_broker import KafkaBroker


def consumer_ids(seen: Watched, table: str) -> list[object]:
    """The keys of the rows that a consumer has that starts now."""
    replica = FoldedTables()
    for payload in (*seen.snapshot_payloads(), *seen.log_payloads()):
        if payload.startswith(b'["data"'):
            replica.apply(decode_changes(frame(payload)))
    return sorted(key[0] for key in replica.table(table))  # type: ignore[type-var]


def letters(seen: Watched) -> dict[str, str]:
    return {letter.row: letter.where for letter in seen.log.kept_aside().letters}


def write_raw(broker: KafkaBroker, topic: str, *records: tuple[bytes | None, bytes]) -> None:
    with broker.producer() as producer:
        for key, value in records:
            producer.send(topic, key=key, value=value, partition=0)


def test_no_consumer_keeps_a_row_whose_newest_record_cannot_be_read(kafka: KafkaBroker, tmp_path: Path) -> None:
    name, path = kafka.create_topic(kafka.topic_name("item"), 1), tmp_path / "dead.jsonl"
    table = name.rpartition(".")[2]
    write(kafka, name, 1, 2, 3, 4)
    write_raw(kafka, name, (b"2", b"{oops"), (b"3", b"{oops"))
    write(kafka, name, 3)

    def adapter() -> KafkaAdapter:
        columns = {"id": "int8", "name": "text"}
        tables = {table: {"topic": name, "key": "id", "columns": columns}}
        return an_adapter(kafka, name, poison="set-aside", dead_letters=str(path), tables=tables)

    log = SqliteLogStore(tmp_path / "state")
    with running(adapter, log) as seen:
        seen.until_generation(1)
        assert consumer_ids(seen, table) == [1, 3, 4]
        assert letters(seen) == {"id=2": f"{name}[0] offset 4"}
        write_raw(kafka, name, (b"1", b"{oops"), (b"{oops", b"{oops"), (None, b"[]"))
        seen.until(lambda: "id=1" in letters(seen), "the letter of row 1")
        assert consumer_ids(seen, table) == [3, 4]
        write(kafka, name, 2)
        seen.until(lambda: "id=2" not in letters(seen), "a later version of row 2")
        assert consumer_ids(seen, table) == [2, 3, 4]
        assert letters(seen) == {"id=1": f"{name}[0] offset 7"}
        seen.until(lambda: _behind(log) == 0, "nothing behind")
    lines = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    assert [line["row"] for line in lines] == [{"id": 2}, {"id": 3}, {"id": 1}, None, None]
    assert ["consumers keep that row" in line["reason"] for line in lines] == [False, False, False, True, True]


def _behind(log: SqliteLogStore) -> object:
    upstream = status_of_log(log)["upstream"]
    assert isinstance(upstream, dict)
    return upstream["default"]["behind"]


def test_the_head_counts_the_records_that_the_log_lacks(kafka: KafkaBroker, tmp_path: Path) -> None:
    name = kafka.create_topic(kafka.topic_name("item"), 2)
    write(kafka, name, 1)
    adapter = an_adapter(kafka, name)
    position = begin_at(adapter)
    assert adapter.distance(position, adapter.head()) == 0
    write(kafka, name, 2, 3)
    write(kafka, name, 4, partition=1)
    assert adapter.head() == {name: [3, 1]}
    assert adapter.distance(position, adapter.head()) == 3
    adapter.close()
    log = SqliteLogStore(tmp_path / "state")
    with running(lambda: an_adapter(kafka, name), log) as seen:
        seen.until(lambda: _behind(log) == 0, "nothing behind")
        before = seen.log.state().position
        with kafka.producer(transactional_id=name, enable_idempotence=True) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(name, key=b"5", value=b'{"id":5}', partition=0)
            producer.flush()
            producer.abort_transaction()

        def head() -> object:
            upstream = seen.stage().get("upstream")
            return upstream.get("head") if isinstance(upstream, dict) else None

        seen.until(lambda: head() == {name: [5, 1]}, "the aborted record and its marker")
        seen.until(lambda: _behind(log) == 0, "nothing behind after a record that no consumer gets")
        assert seen.log.state().position == before
        write_raw(kafka, name, (b"1", b"null"))
        seen.until(lambda: consumer_ids(seen, name.rpartition(".")[2]) == [2, 3, 4], "the delete of row 1")


def test_the_delete_of_a_row_takes_its_letter_away(kafka: KafkaBroker, tmp_path: Path) -> None:
    name = kafka.create_topic(kafka.topic_name("item"), 1)
    write(kafka, name, 1)
    settings = {"poison": "set-aside", "dead_letters": str(tmp_path / "dead.jsonl"), "transactions": "record"}
    with running(lambda: an_adapter(kafka, name, **settings), SqliteLogStore(tmp_path / "state")) as seen:
        seen.until_generation(1)
        write_raw(kafka, name, (b"1", b"{oops"))
        seen.until(lambda: letters(seen) != {}, "the letter")
        with kafka.producer() as producer:
            producer.send(name, key=b"1", value=None, partition=0)
        seen.until(lambda: letters(seen) == {}, "no letter")
        assert consumer_ids(seen, name.rpartition(".")[2]) == []
