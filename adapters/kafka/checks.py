"""The checks of `changesource doctor`: can the topics be read, and what are their tables? Only reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafka.structs import TopicPartition

from adapters.kafka.broker.client import TopicState, make_consumer, require_topics, topic_states, translated_errors
from adapters.kafka.keys.before import sampled_shared_keys
from adapters.kafka.records.dead_letters import count_letters
from adapters.kafka.settings import KafkaSettings
from adapters.kafka.snapshot import current_catalog
from changesource_sdk import AdapterError, ChangesourceError, Check


def examine(settings: KafkaSettings) -> Iterator[Check]:
    states = topic_states(settings)
    yield Check("brokers", True, f"the brokers at {settings.where} answer")
    yield _topics(settings, states)
    yield _readable(settings, states)
    yield from _columns(settings)
    yield from _order(settings, states)
    yield _transactions(settings)
    if settings.poison == "set-aside":
        yield _dead_letters(settings.dead_letters)


def _topics(settings: KafkaSettings, states: dict[str, TopicState]) -> Check:
    try:
        require_topics(settings, states)
    except AdapterError as error:
        return Check("topics", False, error.message, error.fix)
    listed = ", ".join(f"{topic} ({state.partitions} partitions)" for topic, state in sorted(states.items()))
    return Check("topics", True, f"followed: {listed}")


def _readable(settings: KafkaSettings, states: dict[str, TopicState]) -> Check:
    partitions = [TopicPartition(topic, n) for topic, state in states.items() for n in range(state.partitions)]
    consumer = make_consumer(settings)
    try:
        with translated_errors(settings):
            first, end = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    except AdapterError as error:
        return Check("offsets", False, error.message, error.fix)
    finally:
        consumer.close()
    held = sum(end[partition] - first[partition] for partition in partitions)
    return Check("offsets", True, f"the topics hold {held} offsets in {len(partitions)} partitions")


def _columns(settings: KafkaSettings) -> Iterator[Check]:
    """The tables of the topics, by their newest records."""
    try:
        catalog, inferred = current_catalog(settings)
    except ChangesourceError as error:
        yield Check("columns", False, error.message, error.fix)
        return
    guessed = {columns.topic for columns in inferred}
    known = [table.table.full_name for topic, table in catalog.by_topic.items() if topic not in guessed]
    if known:
        yield Check("columns", True, f"declared, or read from the records' schema: {', '.join(known)}")
    for columns in inferred:
        yield Check("columns", True, f"inferred, so see that it is right: {columns}")


def _order(settings: KafkaSettings, states: dict[str, TopicState]) -> Iterator[Check]:
    """Whether keys are in several partitions without an order, by a sample of each partition."""
    divided = [topic for topic, state in sorted(states.items()) if state.partitions > 1 and settings.follows(topic)]
    unordered = [topic for topic in divided if not settings.order_of(topic)]
    if not divided:
        return
    if not unordered:
        yield Check("order", True, f"keys in several partitions are ordered by the setting order_by: {_names(divided)}")
        return
    try:
        shared = sampled_shared_keys(settings, current_catalog(settings)[0], unordered)
    except ChangesourceError:
        return  # other checks report it
    if not shared:
        what = f"no key was seen in several partitions of {_names(unordered)}, by the first and last records of each"
        yield Check("order", True, what)
        return
    fix = "say what orders them: --set order_by=timestamp, source (Debezium) or column:NAME, or order_by in `tables`"
    what = f"keys lie in several partitions of {_names(shared)}, and no order is configured, so that they are refused"
    yield Check("order", False, what, fix)


def _names(topics: Iterable[str]) -> str:
    return ", ".join(topics)


def _transactions(settings: KafkaSettings) -> Check:
    if settings.transaction_topic:
        return Check("transactions", True, f"transactions are whole by {settings.transaction_topic}")
    unit = "a record" if settings.transactions == "record" else "what one fetch brings"
    return Check("transactions", True, f"{unit} is one transaction; the source's transactions are not known")


def _dead_letters(path: str) -> Check:
    count = count_letters(path)
    fix = f"see {path} for the reasons; remove the file when its records are dealt with" if count else ""
    return Check("dead-letters", not count, f"{count} records are set aside in {path}", fix)
