"""A position is gone on with only where topics and settings are still those it was made with."""

from __future__ import annotations

import pytest

from adapters.kafka.broker.client import TopicState, require_topics
from adapters.kafka.broker.consumer import check_range
from adapters.kafka.position import KafkaPosition
from adapters.kafka.resuming import check_resumable
from changesource_sdk.errors import AdapterError, ResyncRequired
from tests.adapters.kafka.made_records import TABLES, settings_of

VECTOR = KafkaPosition({"items": (3,), "notes": (4,)}, {"items": "i", "notes": "n"}, TABLES)
TABLE_NAMES = {"item": {"topic": "items"}, "note": {"topic": "notes"}}
STATES = {"items": TopicState("i", 1), "notes": TopicState("n", 1)}


def test_partitions_added_meanwhile_are_read_from_their_beginning() -> None:
    found = check_resumable(settings_of(tables=TABLE_NAMES), VECTOR, {**STATES, "items": TopicState("i", 3)})
    assert found.offsets == {"items": (3, 0, 0), "notes": (4,)}
    assert found.moved == {"items": "/refuse"}


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        ({"items": TopicState("i", 1)}, "topic notes was deleted"),
        ({**STATES, "notes": TopicState("other", 1)}, "topic notes was deleted and created again"),
        ({**STATES, "new": TopicState("x", 1)}, "topic new is new and matches the setting `topics`"),
    ],
)
def test_other_topics_are_read_anew(states: dict[str, TopicState], reason: str) -> None:
    with pytest.raises(ResyncRequired, match=reason):
        check_resumable(settings_of(topics="*"), VECTOR, states)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"topics": "items"}, "topic notes is no longer among the setting `topics`"),
        ({"format": "debezium", "transaction_topic": "ends"}, "`transaction_topic` is another one"),
        ({"tables": {"thing": {"topic": "items"}}}, "the table of topic items has another name or key"),
        ({"tables": {"item": {"topic": "items", "key": "title"}}}, "the table of topic items has another name or key"),
        (
            {"tables": {"item": {"topic": "items", "columns": {"id": "int8"}}}},
            "the columns of table item are declared otherwise",
        ),
    ],
)
def test_other_settings_are_read_anew(changes: dict[str, object], reason: str) -> None:
    given = {"tables": TABLE_NAMES, **changes}
    with pytest.raises(ResyncRequired, match=reason):
        check_resumable(settings_of(**given), VECTOR, STATES)


def test_offsets_that_are_gone_or_were_never_there_are_read_anew() -> None:
    check_range("items", 0, 5, first=5, end=5)
    with pytest.raises(ResyncRequired, match=r"records 5 to 6 of items\[0\] were removed before they were read"):
        check_range("items", 0, 5, first=7, end=9)
    with pytest.raises(ResyncRequired, match=r"lost records .* items\[0\] ends at 9, and 10 was to be read next"):
        check_range("items", 0, 10, first=7, end=9)


def test_topics_that_must_be_there_are_named() -> None:
    with pytest.raises(AdapterError, match="there is no topic notes"):
        require_topics(settings_of(), {"items": STATES["items"]})
    with pytest.raises(AdapterError, match=r"no topic matches x\.\*"):
        require_topics(settings_of(topics="x.*"), {})
    divided = {**STATES, "ends": TopicState("e", 2)}
    with pytest.raises(AdapterError, match="the transaction topic has 2 partitions"):
        require_topics(settings_of(format="debezium", transaction_topic="ends"), divided)
