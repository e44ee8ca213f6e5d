from __future__ import annotations

import pickle

import pytest

from adapters.postgres.connection import connect
from adapters.postgres.settings import PostgresSettings
from changesource_sdk.errors import AdapterError, ConfigurationError
from tests.support.peers.postgres_server import PostgresServer
from tests.support.ports import free_port


def test_names_follow_from_the_app_unless_given() -> None:
    settings = PostgresSettings.parse("postgresql://h/db", app="shop", shard="2")
    assert settings.slot == "changesource_shop_2_db"
    assert settings.all_publications == ("changesource_shop_2", "changesource_shop_2_system")
    given = PostgresSettings.parse("postgresql://h/db", publication="a, b,a", slot="mine")
    assert (given.data_publications, given.slot) == (("a", "b"), "mine")
    assert pickle.loads(pickle.dumps(given)) == given


def test_databases_of_one_server_get_slots_of_their_own_by_default() -> None:
    names = ("db", "my_db", "My-DB", "m" * 63, "m" * 62 + "n", "")
    slots = [PostgresSettings.parse(f"postgresql://h/{name}").slot for name in names]
    assert len(set(slots)) == len(names)
    assert all(len(slot) <= 63 for slot in slots)


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"dsn": "postgresql://h/db?nope=1"}, "dsn"),
        ({"dsn": "host=h", "publication": "a;b"}, "publication"),
        ({"dsn": "host=h", "slot": "With-Dash"}, "slot"),
        ({"dsn": "host=h", "app": "Shop"}, "app"),
        ({"dsn": "host=h", "shard": "-1"}, "shard"),
    ],
)
def test_a_setting_that_cannot_be_is_named(settings: dict[str, str], where: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        PostgresSettings.parse(**settings)
    assert raised.value.where == where
    assert raised.value.fix


def test_values_have_one_text_form_whatever_the_server_prefers(logical_postgres: PostgresServer) -> None:
    url = logical_postgres.create_database() + "?options=-c%20datestyle%3DGerman%20-c%20timezone%3DAsia/Tokyo"
    with connect(url) as db:
        row = db.execute("SELECT '2024-02-03 04:05:06Z'::timestamptz::text, 0.1::float8::text").fetchone()
    assert row == ("2024-02-03 04:05:06+00", "0.1")


def test_an_unreachable_server_is_told_as_such_without_the_password() -> None:
    with pytest.raises(AdapterError) as raised:
        connect(f"postgresql://me:secret@127.0.0.1:{free_port()}/db")
    assert raised.value.code == "server-unreachable"
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("user", "database", "code"),
    [("nobody_here", "postgres", "login-refused"), ("changesource", "nope", "no-such-database")],
)
def test_wrong_names_are_told_by_what_is_wrong(
    logical_postgres: PostgresServer, user: str, database: str, code: str
) -> None:
    with pytest.raises(AdapterError) as raised:
        connect(f"postgresql://{user}@127.0.0.1:{logical_postgres.port}/{database}")
    assert raised.value.code == code
