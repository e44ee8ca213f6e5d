"""What stages report is seen by whoever looks, in every store; in Postgres also from another host."""

from __future__ import annotations

from pathlib import Path

from changesource_sdk.changelog.coordination.reports import newest
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.postgres.connection import LogAddress
from changesource_sdk.changelog.postgres.store import PostgresLogStore
from tests.changesource_sdk.changelog.logs_under_test import LogUnderTest, postgres_store
from tests.support.peers.postgres_server import PostgresServer
from tests.support.ports import free_port


def report(updated_ms: float, state: str = "tailing") -> dict[str, object]:
    return {"stage": "pipeline", "state": state, "error": None, "updated_ms": updated_ms}


def test_a_report_replaces_the_former(log: LogUnderTest) -> None:
    log.store.layout.create()
    assert log.store.reports.all() == {}
    log.store.reports.leave("pipeline", report(1.0))
    log.store.reports.leave("pipeline", report(2.0, "stopped"))
    log.store.reports.leave("compaction", report(3.0, "idle"))
    assert log.store.reports.all() == {"pipeline": report(2.0, "stopped"), "compaction": report(3.0, "idle")}


def test_another_host_sees_a_change_of_state_at_once(postgres: PostgresServer, tmp_path: Path) -> None:
    here = postgres_store(postgres.url(), tmp_path / "here")
    there = PostgresLogStore(here.address, StateDirectory(tmp_path / "there"))
    here.layout.create()
    here.reports.leave("pipeline", report(1.0))
    assert there.reports.all() == {"pipeline": report(1.0)}
    here.reports.leave("pipeline", report(2.0))
    assert there.reports.all() == {"pipeline": report(1.0)}, "what is not urgent waits"
    here.reports.leave("pipeline", report(3.0, "stopped"))
    assert there.reports.all() == {"pipeline": report(3.0, "stopped")}
    for turn in (1, 2):
        here.reports.leave("warnings", {"urgent": turn, "updated_ms": float(turn)})
        assert there.reports.all()["warnings"]["urgent"] == turn, "a new warning does not wait"
    here.close()
    there.close()


def test_while_the_database_is_away_reports_stay_on_their_host(tmp_path: Path) -> None:
    address = LogAddress(f"postgresql://nobody@127.0.0.1:{free_port()}/none")
    store = PostgresLogStore(address, StateDirectory(tmp_path).create())
    store.reports.leave("pipeline", report(1.0, "backing-off"))
    assert store.reports.all() == {"pipeline": report(1.0, "backing-off")}
    store.close()


def test_the_newest_of_several_counts() -> None:
    old, new = report(1.0), report(2.0)
    assert newest({"a": old, "b": new}, {"a": new, "b": old}) == {"a": new, "b": new}
