"""Settings as users give them: what is understood, and what is refused with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.kafka import KafkaAdapter
from adapters.kafka.settings import KafkaSettings, TableOptions, collection_topic
from adapters.kafka.types import Encoded
from changesource_sdk.errors import ConfigurationError
from tests.adapters.kafka.made_records import settings_of


def test_lists_are_comma_separated() -> None:
    found = settings_of(bootstrap="a:9092, b:9092", topics="shop.public.*,users")
    assert found.bootstrap == ("a:9092", "b:9092")
    assert found.named_topics == ("users",)
    assert found.where == "a:9092, b:9092"


def test_topics_are_followed_by_name_or_glob_but_never_the_brokers_own_or_the_transactions() -> None:
    found = settings_of(topics="shop.*,__consumer_offsets", format="debezium", transaction_topic="shop.transaction")
    asked = ("shop.public.a", "other", "shop.transaction", "__consumer_offsets")
    assert [found.follows(topic) for topic in asked] == [True, False, False, False]


def test_tables_are_described_in_toml(tmp_path: Path) -> None:
    file = tmp_path / "tables.toml"
    file.write_text(
        """
        [tables.issue]
        topic = "shop.public.issues"
        key = ["org", "id"]
        collection = "public.issues"
        [tables.issue.columns]
        org = "text"
        id = "int8"
        made = { type = "timestamptz", as = "micros" }
        [tables.users]
        key = "name"
        key_format = "text"
        """
    )
    found = settings_of(tables=str(file))
    columns = {"org": Encoded("text"), "id": Encoded("int8"), "made": Encoded("timestamptz", "micros")}
    issue = TableOptions("issue", "shop.public.issues", ("org", "id"), columns, "json", "public.issues")
    assert found.options("shop.public.issues") == issue
    assert found.options("x.users") == TableOptions("users", "", ("name",), {}, "text")
    assert found.options("x.others") == TableOptions("others", "x.others")


def test_collections_are_found_by_the_names_of_their_topics() -> None:
    found = settings_of(
        format="debezium",
        transaction_topic="shop.transaction",
        tables={"odd": {"topic": "elsewhere", "collection": "public.odd one"}},
    )
    assert found.collections(["shop.public.item", "shop.public.my_table", "elsewhere"]) == {
        "public.item": "shop.public.item",
        "public.my_table": "shop.public.my_table",
        "public.odd_one": "elsewhere",
    }
    assert collection_topic("public.my table") == "public.my_table"


def test_a_topic_whose_collection_nothing_tells_is_refused() -> None:
    found = settings_of(format="debezium", transaction_topic="shop.transaction")
    with pytest.raises(ConfigurationError, match=r"which collection .* the topic crm.item has"):
        found.collections(["crm.item"])


def test_security_options_are_passed_on() -> None:
    given = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "ssl_check_hostname": "false"}
    assert settings_of(**given).client == {**given, "ssl_check_hostname": False}


def test_an_option_nobody_knows_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigurationError) as caught:
        KafkaAdapter("a:9092", "t", sasl_machanism="PLAIN")
    assert caught.value.message == "KafkaAdapter has no setting 'sasl_machanism'"
    assert caught.value.fix == "did you mean 'sasl_mechanism'?"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"topics": " , "}, "`topics` cannot be"),
        ({"bootstrap": ""}, "`bootstrap` cannot be ''"),
        ({"format": "xml"}, "`format` cannot be 'xml'"),
        ({"transactions": "all"}, "`transactions` cannot be 'all'"),
        ({"poison": "ignore"}, "`poison` cannot be 'ignore'"),
        ({"poison": "set-aside"}, "needs a file"),
        ({"key_mismatch": "ignore"}, "`key_mismatch` cannot be 'ignore'"),
        ({"key_mismatch": "set-aside"}, "needs a file"),
        ({"unordered_keys": "guess"}, "`unordered_keys` cannot be 'guess'"),
        ({"order_by": "version"}, "`order_by` cannot be 'version'"),
        ({"order_by": "source"}, "belongs to Debezium"),
        ({"tables": {"a": {"order_by": "time"}}}, "`tables.a.order_by` cannot be 'time'"),
        ({"transaction_topic": "t"}, "belongs to Debezium"),
        ({"stall_after": "soon"}, "`stall_after` cannot be 'soon'"),
        ({"open_limit": "many"}, "`open_limit` cannot be 'many'"),
        ({"open_limit": 0}, "`open_limit` cannot be 0"),
        ({"tables": "/no/such/file"}, "`tables` cannot be"),
        ({"tables": {"a": 5}}, "`tables.a` cannot be 5"),
        ({"tables": {"a": {"kye": "id"}}}, "a table has no option 'kye'"),
        ({"tables": {"a": {"key_format": "xml"}}}, "`tables.a.key_format` cannot be 'xml'"),
        ({"tables": {"a": {"columns": "id"}}}, "`tables.a.columns` cannot be 'id'"),
        ({"tables": {"a": {"columns": {"id": 5}}}}, "`tables.a.columns.id` cannot be 5"),
        ({"tables": {"a": {"columns": {"id": {"type": "date", "as": "weeks"}}}}}, "no encoding is called 'weeks'"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        settings_of(**changes)


def test_a_table_may_have_an_order_of_its_own() -> None:
    given = settings_of(order_by="timestamp", tables={"item": {"topic": "items", "order_by": "column:version"}})
    assert (given.order_of("items"), given.order_of("notes")) == ("column:version", "timestamp")


def test_settings_are_all_that_is_pickled() -> None:
    adapter = KafkaAdapter("a:9092", "t", format="upsert")
    assert adapter.__getstate__() == {"_settings": KafkaSettings.parse("a:9092", "t", "upsert")}
