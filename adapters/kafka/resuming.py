"""Whether a position still fits the topics and the settings, or a resync is required. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from adapters.kafka.broker.client import TopicState
from adapters.kafka.broker.consumer import RESYNC, topic_gone, topic_replaced
from adapters.kafka.position import KafkaPosition, Offsets
from adapters.kafka.settings import KafkaSettings
from changesource_sdk import ResyncRequired


def check_resumable(
    settings: KafkaSettings, position: KafkaPosition, states: Mapping[str, TopicState]
) -> KafkaPosition:
    """The position, extended by partitions that were added. Raises `ResyncRequired` with the difference."""
    for topic, known in position.topic_ids.items():
        if topic not in states:
            raise topic_gone(topic)
        if states[topic].id != known:
            raise topic_replaced(topic)
    followed = {topic for topic in states if settings.follows(topic)}
    for topic in sorted(followed ^ position.catalog.by_topic.keys()):
        what = "is new and matches" if topic in followed else "is no longer among"
        raise _changed(f"topic {topic} {what} the setting `topics`")
    if (settings.transaction_topic in position.offsets) != bool(settings.transaction_topic):
        raise _changed("the setting `transaction_topic` is another one")
    _same_tables(settings, position)
    offsets = {topic: _padded(numbers, states[topic].partitions) for topic, numbers in position.offsets.items()}
    if position.moved is None:
        return replace(position, offsets=offsets)
    for topic, ordering in position.moved.items():
        if ordering != settings.ordering(topic):
            raise _changed(f"keys of topic {topic} are ordered otherwise in the settings")
    return replace(position, offsets=offsets, moved={**position.moved, **grown_topics(settings, position, offsets)})


def grown_topics(settings: KafkaSettings, position: KafkaPosition, offsets: Offsets) -> dict[str, str]:
    """The topics that have more partitions in these offsets than at a position, as `KafkaPosition.moved` has them."""
    return {topic: settings.ordering(topic) for topic, known in position.offsets.items() if offsets[topic] != known}


def _same_tables(settings: KafkaSettings, position: KafkaPosition) -> None:
    for topic, known in position.catalog.by_topic.items():
        wanted, options = known.table, settings.options(topic)
        columns = {column.name: column.data_type for column in wanted.columns}
        declared = {name: kind.data_type for name, kind in options.columns.items()}
        if options.name != wanted.full_name or (options.key and options.key != tuple(wanted.key)):
            raise _changed(f"the table of topic {topic} has another name or key in the settings")
        if known.is_closed != bool(declared) or (declared and declared != columns):
            raise _changed(f"the columns of table {wanted.full_name} are declared otherwise in the settings")


def _padded(numbers: tuple[int, ...], partitions: int) -> tuple[int, ...]:
    return (*numbers, *[0] * (partitions - len(numbers)))


def _changed(what: str) -> ResyncRequired:
    return ResyncRequired("settings-changed", what, fix=RESYNC)
