"""Connections to the brokers: options for kafka-python, and its errors with a code and a fix.

Also lists the topics with their ids and partitions: a topic that was deleted and created again has another id.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from kafka import KafkaAdminClient, KafkaConsumer
from kafka.errors import (
    AuthorizationError,
    KafkaConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
    UnsupportedCodecError,
)

from adapters.kafka.broker.refusals import logged_errors, login_refused, refusal
from adapters.kafka.settings import KafkaSettings
from changesource_sdk import AdapterError, ConfigurationError

Client = TypeVar("Client")

FIRST_TRY_MS = 2_000
"""After this time a refused connection is reported. Brokers that do not answer get `CONNECT_MS`."""
CONNECT_MS = 10_000
RECONNECT_MS = 1_000
NO_TOPIC = "00000000-0000-0000-0000-000000000000"

READING = {
    "group_id": None,
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
    "isolation_level": "read_committed",
    "allow_auto_create_topics": False,
    # The client sleeps this long before a new consumer's first fetch: by default 0.2 s per partition.
    "retry_backoff_ms": 20,
    # Without a compiled checksum, kafka-python computes it in Python, which takes longer than everything else.
    "check_crcs": importlib.util.find_spec("crc32c") is not None,
}
"""How every consumer reads: committed records only, from explicit offsets, changing nothing on the brokers."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """The current id and number of partitions of a topic."""

    id: str
    partitions: int


def connection_options(settings: KafkaSettings) -> dict[str, object]:
    """The options of every client."""
    return {
        "bootstrap_servers": list(settings.bootstrap),
        "reconnect_backoff_max_ms": RECONNECT_MS,
        "bootstrap_timeout_ms": CONNECT_MS,
        **settings.client,
    }


def reading_options(settings: KafkaSettings) -> dict[str, object]:
    """The options of a consumer that reads records."""
    return {**connection_options(settings), **READING}


def make_consumer(settings: KafkaSettings, **options: object) -> KafkaConsumer:
    """A connected consumer. Raises `AdapterError`."""
    return _connected(settings, partial(KafkaConsumer, **{**reading_options(settings), **options}))


def _connected(settings: KafkaSettings, make: Callable[..., Client]) -> Client:
    with translated_errors(settings):
        with logged_errors() as errors:
            try:
                return make(bootstrap_timeout_ms=FIRST_TRY_MS)
            except KafkaTimeoutError as error:
                if reason := refusal(settings, errors):
                    raise reason from error
        return make()


def topic_states(settings: KafkaSettings) -> dict[str, TopicState]:
    """The followed topics that exist, and the transaction topic."""
    admin = _connected(settings, partial(KafkaAdminClient, **connection_options(settings)))
    with translated_errors(settings):
        try:
            names = [name for name in admin.list_topics() if _is_wanted(settings, name)]
            topics = admin.describe_topics(names) if names else []
        finally:
            admin.close()
    return {topic["name"]: TopicState(str(topic["topic_id"]), len(topic["partitions"])) for topic in topics}


def _is_wanted(settings: KafkaSettings, name: str) -> bool:
    return name == settings.transaction_topic or settings.follows(name)


def require_topics(settings: KafkaSettings, states: dict[str, TopicState]) -> None:
    """Raise unless every topic named in the settings exists, and at least one is followed."""
    named = [*settings.named_topics, *([settings.transaction_topic] if settings.transaction_topic else [])]
    missing = [name for name in named if name not in states]
    if missing:
        raise AdapterError(
            "topic-missing",
            f"there is no topic {', '.join(missing)}",
            where=settings.where,
            fix="create it, or correct the setting `topics`; it is looked for again with a growing delay",
        )
    boundaries = states.get(settings.transaction_topic)
    if boundaries is not None and boundaries.partitions != 1:
        raise AdapterError(
            "transaction-topic-divided",
            f"the transaction topic has {boundaries.partitions} partitions, so the order of commits is unknown",
            where=f"topic {settings.transaction_topic}",
            fix="let it have one partition, or go without the setting `transaction_topic`",
        )
    if not any(settings.follows(name) for name in states):
        raise AdapterError(
            "topic-missing",
            f"no topic matches {', '.join(settings.topics)}",
            where=settings.where,
            fix="correct the setting `topics`; it is looked for again with a growing delay",
        )


@contextmanager
def translated_errors(settings: KafkaSettings) -> Iterator[None]:
    """Raise errors of kafka-python as `AdapterError` with a stable code and a fix."""
    where = settings.where
    with logged_errors() as errors:
        try:
            yield
        except KafkaConfigurationError as error:
            raise ConfigurationError("bad-setting", str(error), where, "correct the option that it names") from error
        except SaslAuthenticationFailedError as error:
            raise login_refused(settings, error) from error
        except AuthorizationError as error:
            fix = "allow this user to describe and read the topics"
            raise AdapterError("not-allowed", f"the brokers do not allow it: {error}", where, fix) from error
        except UnsupportedCodecError as error:
            fix = "install the codec for Python: pip install lz4, python-snappy or zstandard"
            raise AdapterError("codec-missing", f"records are compressed: {error}", where, fix) from error
        except (KafkaError, OSError) as error:
            raise refusal(settings, errors) or _unreachable(where, error) from error


def _unreachable(where: str, error: Exception) -> AdapterError:
    return AdapterError(
        "broker-unreachable",
        f"no broker answers: {error}",
        where,
        "see that the brokers run and that the setting `bootstrap` and the security settings suit them",
    )
