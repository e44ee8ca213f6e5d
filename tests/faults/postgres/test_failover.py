"""Failover: the primary dies, a standby is promoted, and consumers start over above everything they have seen.

Slots do not reach a standby before Postgres 17, so what happened between the last confirmed change and the promotion
cannot be told apart; the store is read anew, once, by itself.
"""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from adapters.postgres.replication.lineage import check_lineage
from adapters.postgres.settings import PostgresSettings
from changesource_sdk.errors import ResyncRequired
from changesource_sdk.testing.fake_cache import FakeCache
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.serving import Serving
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]


def _generation(endpoint: Serving) -> int:
    return int(endpoint.status()["log"]["generation"])


def _is_copied(standby: PostgresServer, database: str) -> bool:
    with psycopg.connect(standby.url(database)) as db:
        return db.execute("SELECT count(*) FROM public.t").fetchone() == (2,)


async def test_a_promoted_standby_is_followed_from_a_new_snapshot(tmp_path: Path) -> None:
    with PostgresServer(wal_level="logical", synchronous_commit="on") as primary:
        name = primary.create_database("app").rpartition("/")[2]
        with psycopg.connect(primary.url(name), autocommit=True) as db:
            db.execute("CREATE TABLE public.t (id int PRIMARY KEY); INSERT INTO public.t VALUES (1)")
        with PostgresServer(copy_of=primary, wal_level="logical", synchronous_commit="on") as standby:
            hosts = ",".join(f"127.0.0.1:{server.port}" for server in (primary, standby))
            dsn = f"postgresql://changesource@{hosts}/{name}?target_session_attrs=read-write"
            with Serving("postgres", {"dsn": dsn}, tmp_path / "state") as endpoint:
                endpoint.start()
                before = FakeCache(endpoint.stream_url, timeout=60)
                await before.initial_sync()
                with psycopg.connect(primary.url(name), autocommit=True) as db:
                    db.execute("INSERT INTO public.t VALUES (2)")
                async with before.stream():
                    while len(before.rows("t")) < 2:
                        await before.receive()
                until(lambda: _is_copied(standby, name), "the standby to follow")
                primary.kill()
                standby.promote()
                until(lambda: _generation(endpoint) == 2, "a new snapshot", seconds=120)
                with psycopg.connect(dsn, autocommit=True) as db:
                    db.execute("INSERT INTO public.t VALUES (3)")
                after = FakeCache(endpoint.stream_url, timeout=60)
                await after.initial_sync()
                assert after.watermark is not None
                assert before.watermark is not None
                assert after.watermark > before.watermark
                async with after.stream():
                    while len(after.rows("t")) < 3:
                        await after.receive()
                assert sorted(int(str(row["id"])) for row in after.rows("t").values()) == [1, 2, 3]
                print(endpoint.process.tail(60))
            _assert_fork_is_known(standby.url(name))


def _assert_fork_is_known(url: str) -> None:
    """A position up to where the new primary left the old history can be continued from; one beyond it cannot."""
    settings = PostgresSettings.parse(url)
    back = "UPDATE changesource_state.pipelines SET server = split_part(server, '/', 1) || '/1'"
    with settings.connect() as db:
        db.execute(back)
        check_lineage(db, settings, after=1)
        db.execute(back)
        with pytest.raises(ResyncRequired, match="left the followed history"):
            check_lineage(db, settings, after=1 << 50)
