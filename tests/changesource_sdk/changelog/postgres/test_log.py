"""What only a log in Postgres can meet: lost connections, several logs in one database, a server with other habits."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.open import open_store
from changesource_sdk.changelog.postgres.connection import LogAddress, Session, connect, translated
from changesource_sdk.changelog.postgres.store import PostgresLogStore
from changesource_sdk.changelog.reading import knows
from changesource_sdk.errors import ConfigurationError, CorruptLog, DiskFull, ReadOnlyState, StaleWriter, StateError
from changesource_sdk.positions import Position
from protocol import watermark as watermarks
from tests.changesource_sdk.changelog.log_fixtures import START_US, begin_generation, payloads, transaction
from tests.changesource_sdk.changelog.logs_under_test import LogUnderTest, postgres_store
from tests.support.peers.postgres_server import PostgresServer
from tests.support.ports import free_port

PATIENCE_S = 60.0


@pytest.fixture
def log(postgres: PostgresServer, tmp_path: Path) -> Iterator[LogUnderTest]:
    made = LogUnderTest("postgres", postgres_store(postgres.url(), tmp_path))
    yield made
    made.close()


def address(log: LogUnderTest) -> LogAddress:
    assert isinstance(log.store, PostgresLogStore)
    return log.store.address


def cut_connections(postgres: PostgresServer) -> None:
    """End every other session, as a server that restarts would."""
    query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'changesource'"
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(query)


def test_commits_are_synchronous_whatever_the_server_s_default(log: LogUnderTest) -> None:
    with connect(address(log)) as connection:
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
    with psycopg.connect(address(log).url) as plain:
        assert plain.execute("SHOW synchronous_commit").fetchone() == ("off",)


def test_a_reader_survives_a_lost_connection(log: LogUnderTest, postgres: PostgresServer) -> None:
    mark = log.writer_with_generation().append([transaction(1)])[0]
    reader = log.reader()
    assert reader.state().head == mark
    cut_connections(postgres)
    assert reader.state().head == mark


def test_a_writer_tells_of_a_lost_connection_and_the_next_goes_on(log: LogUnderTest, postgres: PostgresServer) -> None:
    writer = log.writer_with_generation()
    writer.append([transaction(1)])
    cut_connections(postgres)
    with pytest.raises(StateError) as lost:
        writer.append([transaction(2)])
    assert lost.value.code == "log-unreachable"
    again = log.writer()
    again.append([transaction(1), transaction(2)])
    assert (again.state().transactions, again.state().position) == (2, 2)


def test_a_listener_listens_again_after_a_lost_connection(log: LogUnderTest, postgres: PostgresServer) -> None:
    log.writer_with_generation().close()
    listener = log.listener()
    assert listener.wait(PATIENCE_S)
    cut_connections(postgres)
    assert listener.wait(PATIENCE_S), "it rings once when it listens again"
    log.writer().append([transaction(1)])
    assert listener.wait(PATIENCE_S)


def test_a_server_that_is_not_there_is_told_without_the_password(tmp_path: Path) -> None:
    url = f"postgresql://someone:sesame@127.0.0.1:{free_port()}/nowhere"
    with pytest.raises(StateError) as refused:
        PostgresLogStore(LogAddress(url), StateDirectory(tmp_path)).open_writer(lambda: 1)
    assert refused.value.code == "log-unreachable"
    assert refused.value.fix
    assert "sesame" not in repr(refused.value.as_json())


def test_a_database_that_does_not_exist_is_told(postgres: PostgresServer) -> None:
    with pytest.raises(StateError, match=r"cannot be reached|refuses") as refused:
        Session(LogAddress(postgres.url("absent"))).rows("SELECT 1")
    assert "absent" in str(refused.value)


def test_writers_that_open_at_once_make_one_log_and_one_of_them_stays(log: LogUnderTest) -> None:
    opened: list[int] = []
    gate = threading.Barrier(6)

    def take_over() -> None:
        gate.wait()
        writer = log.store.open_writer(lambda: START_US)
        opened.append(writer.state().epoch)
        writer.close()

    threads = [threading.Thread(target=take_over) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(opened) == [1, 2, 3, 4, 5, 6]


def test_an_append_that_the_server_refuses_changes_nothing_and_can_be_repeated(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    first = writer.append([transaction(1)])[0]
    blocked = watermarks.succ(watermarks.succ(first))
    with connect(address(log)) as connection:
        connection.execute("INSERT INTO transactions VALUES (%s, 'in the way', NULL, 0, 0, '', NULL)", (blocked,))
        with pytest.raises(StateError, match="log-failed"):
            writer.append([transaction(2), transaction(3)])
        assert log.reader().state().head == first
        connection.execute("DELETE FROM transactions WHERE watermark = %s", (blocked,))
    assert len(writer.append([transaction(2), transaction(3)])) == 2
    assert (log.reader().state().transactions, log.reader().state().position) == (3, 3)


def test_two_writers_in_turn_never_mix(log: LogUnderTest) -> None:
    first = log.writer_with_generation()
    second = log.writer()
    second.append([transaction(1)])
    with pytest.raises(StaleWriter):
        first.append([transaction(1, "other")])
    assert b"other" not in b"".join(payloads(log.reader()))


def test_logs_of_one_database_are_apart(postgres: PostgresServer, tmp_path: Path) -> None:
    names = [f"log_{secrets.token_hex(4)}" for _ in range(2)]
    made = [
        LogUnderTest("postgres", open_store(tmp_path / name, postgres.url(), name, str(tmp_path / "spool")))
        for name in names
    ]
    for log in made:
        log.writer()
        log.store.requests.ask_snapshot("0a", log.store.layout.spool.name)
    assert [log.store.layout.spool for log in made] == [tmp_path / "spool" / name for name in names]
    reasons = [request.reason for log in made if (request := log.store.requests.pending_snapshot())]
    assert reasons == names
    for log in made:
        log.close()


def test_a_position_may_be_long(log: LogUnderTest) -> None:
    position: Position = {f"topic-{number}": number for number in range(2000)}
    writer = log.writer_with_generation()
    first = writer.append([transaction(position)])
    assert writer.append([transaction(position)]) == first
    assert knows(log.reader(), position)


def test_a_newer_format_is_refused_and_kept(log: LogUnderTest) -> None:
    log.writer().close()
    with connect(address(log)) as connection:
        connection.execute("UPDATE state SET format = 99")
    with pytest.raises(StateError, match="log-format"):
        log.writer()


def test_a_log_that_is_set_aside_is_followed_by_a_higher_one(log: LogUnderTest) -> None:
    writer = log.writer_with_generation()
    head = writer.snapshots()[0].watermark
    kept = log.store.set_aside()
    assert kept == f"{address(log).schema}_corrupt_1"
    again = log.writer(now_us=5)
    assert again.state().generation == 0
    assert begin_generation(again, log.state) > head
    with psycopg.connect(address(log).url, autocommit=True) as connection:
        connection.execute(f'DROP SCHEMA "{kept}" CASCADE'.encode())


def test_what_the_server_says_becomes_an_error_with_a_way_out() -> None:
    cases = {
        psycopg.errors.DiskFull: DiskFull,
        psycopg.errors.DataCorrupted: CorruptLog,
        psycopg.errors.InsufficientPrivilege: ReadOnlyState,
        psycopg.errors.InvalidPassword: StateError,
        psycopg.errors.AdminShutdown: StateError,
        psycopg.errors.UndefinedColumn: StateError,
    }
    for raised, expected in cases.items():
        with pytest.raises(expected) as told, translated("here"):
            raise raised("said")
        assert told.value.where == "here"
        assert told.value.fix


@pytest.mark.parametrize(
    ("log", "schema", "code"),
    [
        ("mysql://host/db", "changesource", "bad-log-url"),
        ("postgresql://host:notaport:1/db?bogus=1", "changesource", "bad-log-url"),
        ("postgresql://host/db", "No Such Schema", "bad-log-schema"),
    ],
)
def test_an_address_that_cannot_work_is_refused_before_anything_starts(
    tmp_path: Path, log: str, schema: str, code: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        open_store(tmp_path, log, schema)
    assert refused.value.code == code
