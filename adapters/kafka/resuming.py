"""Whether a position still fits the topics and the settings, or the topics must be read anew. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from adapters.kafka.broker.client import TopicState
from adapters.kafka.broker.consumer import READ_ANEW, topic_gone, topic_replaced
from adapters.kafka.position import Offsets, Vector
from adapters.kafka.settings import KafkaSettings
from changesource_sdk import ResyncRequired


def check_resumable(settings: KafkaSettings, vector: Vector, states: Mapping[str, TopicState]) -> Vector:
    """The position with partitions that were added meanwhile. Raises `ResyncRequired` with what is different."""
    for topic, known in vector.topic_ids.items():
        if topic not in states:
            raise topic_gone(topic)
        if states[topic].id != known:
            raise topic_replaced(topic)
    followed = {topic for topic in states if settings.follows(topic)}
    for topic in sorted(followed ^ vector.catalog.by_topic.keys()):
        what = "is new and matches" if topic in followed else "is no longer among"
        raise _changed(f"topic {topic} {what} the setting `topics`")
    if (settings.transaction_topic in vector.offsets) != bool(settings.transaction_topic):
        raise _changed("the setting `transaction_topic` is another one")
    _same_tables(settings, vector)
    offsets = {topic: _padded(numbers, states[topic].partitions) for topic, numbers in vector.offsets.items()}
    if vector.moved is None:
        return replace(vector, offsets=offsets)
    for topic, ordering in vector.moved.items():
        if ordering != settings.ordering(topic):
            raise _changed(f"keys of topic {topic} are ordered otherwise in the settings")
    return replace(vector, offsets=offsets, moved={**vector.moved, **grown_topics(settings, vector, offsets)})


def grown_topics(settings: KafkaSettings, vector: Vector, offsets: Offsets) -> dict[str, str]:
    """The topics that have more partitions in these offsets than at a position, as `Vector.moved` has them."""
    return {topic: settings.ordering(topic) for topic, known in vector.offsets.items() if offsets[topic] != known}


def _same_tables(settings: KafkaSettings, vector: Vector) -> None:
    for topic, known in vector.catalog.by_topic.items():
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
    return ResyncRequired("settings-changed", what, fix=READ_ANEW)
