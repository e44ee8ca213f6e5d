"""Settings: one section per table, in TOML or with dots, checked before anything is opened."""

from __future__ import annotations

import pytest

from adapters.spark_tables import SparkTablesAdapter
from adapters.spark_tables.settings import TableSettings, read_tables
from changesource_sdk.errors import ConfigurationError

ORDERS = {"delta": "/lake/orders", "key": ["region", "id"]}


def test_a_section_says_all_about_a_table() -> None:
    section = {**ORDERS, "poll": 0.2, "group": "shop", "options": {"region": "eu"}, "change_feed": False}
    assert read_tables({"orders": section}, {}) == (
        TableSettings(
            "orders", "delta", "/lake/orders", ("region", "id"), 0.2, "shop", {"region": "eu"}, change_feed=False
        ),
    )


def test_dotted_keys_say_the_same_as_a_section() -> None:
    dotted = {
        "tables.orders.delta": "/lake/orders",
        "tables.orders.key": "region, id",
        "tables.orders.poll": "0.2",
        "tables.orders.options.region": "eu",
    }
    section = {**ORDERS, "poll": 0.2, "options": {"region": "eu"}}
    assert read_tables({}, dotted) == read_tables({"orders": section}, {})


def test_a_table_may_live_in_a_schema() -> None:
    (table,) = read_tables({}, {"tables.sales.orders.delta": "/lake", "tables.sales.orders.key": "id"})
    assert table.name == "sales.orders"


@pytest.mark.parametrize(
    ("tables", "dotted", "where", "said"),
    [
        ({}, {}, "tables", "no table is named"),
        ({"orders": {"key": "id"}}, {}, "tables.orders", "no source"),
        ({"orders": {**ORDERS, "parquet": "/x"}}, {}, "tables.orders", "2 sources (delta, parquet)"),
        ({"orders": {"delta": "/x"}}, {}, "tables.orders.key", "cannot be ''"),
        ({"orders": {"delta": "/x", "key": "id, id"}}, {}, "tables.orders.key", "cannot be 'id, id'"),
        ({"orders": {**ORDERS, "pol": 1}}, {}, "tables.orders.pol", "unknown key 'pol'"),
        ({"orders": {**ORDERS, "poll": "often"}}, {}, "tables.orders.poll", "cannot be 'often'"),
        ({"orders": {**ORDERS, "poll": 0}}, {}, "tables.orders.poll", "cannot be 0"),
        ({"orders": {**ORDERS, "change_feed": "maybe"}}, {}, "tables.orders.change_feed", "cannot be 'maybe'"),
        ({"orders": {**ORDERS, "delta_reader": "jar"}}, {}, "tables.orders.delta_reader", "cannot be 'jar'"),
        ({"orders": "/x"}, {}, "tables.orders", "cannot be '/x'"),
        ({}, {"path": "/x"}, "--set", "there is no setting 'path'"),
    ],
)
def test_a_mistake_is_told_with_its_key(tables: object, dotted: dict[str, object], where: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read_tables(tables, dotted)
    assert raised.value.where == where
    assert said in raised.value.message
    assert raised.value.fix


def test_the_nearest_key_is_suggested() -> None:
    with pytest.raises(ConfigurationError) as raised:
        read_tables({"orders": {**ORDERS, "pol": 1}}, {})
    assert raised.value.fix == "did you mean 'poll'?"


def test_identity_is_of_source_and_key_and_not_of_how_it_is_read() -> None:
    (one,) = read_tables({"orders": ORDERS}, {})
    (other,) = read_tables({"orders": {**ORDERS, "poll": 9, "delta_reader": "spark"}}, {})
    (moved,) = read_tables({"orders": {**ORDERS, "delta": "/elsewhere"}}, {})
    assert one.identity == other.identity != moved.identity


def test_the_shortest_poll_is_the_adapters() -> None:
    adapter = SparkTablesAdapter({"a": {**ORDERS, "poll": 5}, "b": {**ORDERS, "poll": 0.5}})
    assert adapter.poll_interval == 0.5
