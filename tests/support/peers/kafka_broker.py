"""A scratch Kafka broker: one real KRaft node with its own data folder and its own ports, gone when closed.

Place in the flow: the fixture `kafka` holds one for the whole test run, and every test takes topics with names of its
own (`topic_name`). A test that kills, stops or starts the broker has one of its own. Contract: `start_again` brings the
same broker back on the same port with what it held; each run of it is a process of its own, waited for by its own
lines. Records survive SIGKILL, since the operating system has them.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewPartitions, NewTopic
from kafka.consumer.fetcher import ConsumerRecord
from kafka.structs import TopicPartition

from changesource_sdk.pipeline.spark.java import find_java
from tests.support.certificates import Authority
from tests.support.child_process import ChildProcess
from tests.support.ports import free_port
from tests.support.tools import MissingTool, kafka_jars
from tests.support.waiting import until

READY_LINE = "Kafka Server started"
READY_SECONDS = 120
JVM_OPTIONS = (
    "-Xmx384m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
)
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "controlled.shutdown.enable": "false",
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "num.io.threads": "2",
    "num.network.threads": "2",
    "log.cleaner.dedupe.buffer.size": "8388608",
}


USER, PASSWORD = "app", "s3cret"
"""Who may log in at `secured`, by PLAIN."""


class KafkaBroker:
    """One broker; `bootstrap` stays the same over its stops and starts, until `close()`."""

    def __init__(self, **settings: str) -> None:
        """Start an empty broker; settings are written with `_` for `.`."""
        self._folder = Path(tempfile.mkdtemp(prefix="changesource-kafka-"))
        self._extra = {name.replace("_", "."): value for name, value in settings.items()}
        # Begins with a letter: where it began with a dash, Kafka's tools would take it for an option.
        self._cluster = urlsafe_b64encode(b"\0" + secrets.token_bytes(15)).decode().rstrip("=")
        self._process: ChildProcess | None = None
        authority = Authority(self._folder)
        self.ca = authority.ca
        self._keys = self._folder / "server.pem"
        self._keys.write_text(authority.server_pem())
        self.port, self._secured_port = free_port(), free_port()
        try:
            self._write_settings(free_port())
            self._format()
            self._run()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> KafkaBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def secured(self) -> str:
        """The same broker for those who trust `ca` and log in."""
        return f"127.0.0.1:{self._secured_port}"

    def kill(self) -> None:
        """SIGKILL; what was acknowledged stays."""
        assert self._process is not None
        self._process.kill()

    def stop(self) -> None:
        """A shutdown, as an administrator does it."""
        assert self._process is not None
        self._process.stop(seconds=READY_SECONDS)

    def start_again(self) -> None:
        """The same broker on the same port, with what it held."""
        self._run()

    def close(self) -> None:
        """Stop at once (nothing in it matters) and remove the data folder."""
        if self._process is not None and self._process.running:
            self._process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- topics and records ---

    def topic_name(self, prefix: str = "topic") -> str:
        """A name nobody has."""
        return f"{prefix}-{secrets.token_hex(4)}"

    def create_topic(self, name: str, partitions: int = 1, **settings: str) -> str:
        """Create a topic, wait until it takes records, and return its name."""
        configs = {key.replace("_", "."): value for key, value in settings.items()}
        with self.admin() as admin:
            admin.create_topics([NewTopic(name, partitions, 1, topic_configs=configs)])
            admin.wait_for_topics([name], timeout_ms=60_000)
        return name

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to so many partitions."""
        with self.admin() as admin:
            admin.create_partitions({name: NewPartitions(total)})
            until(lambda: self.partition_count(name) == total, f"{name} to have {total} partitions", seconds=60)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until it is gone."""
        with self.admin() as admin:
            admin.delete_topics([name])
            until(lambda: name not in admin.list_topics(), f"{name} to be gone", seconds=60)

    def delete_records(self, name: str, before: Mapping[int, int]) -> None:
        """Let retention take what lies before an offset of each partition, now."""
        with self.admin() as admin:
            admin.delete_records({TopicPartition(name, number): offset for number, offset in before.items()})

    def records(self, name: str) -> Iterator[ConsumerRecord]:
        """What a reader of the whole topic gets now."""
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest", group_id=None)
        try:
            places = [TopicPartition(name, number) for number in range(self.partition_count(name))]
            consumer.assign(places)
            ends = consumer.end_offsets(places)
            while any(consumer.position(place) < ends[place] for place in places):
                for records in consumer.poll(timeout_ms=1_000).values():
                    yield from records
        finally:
            consumer.close()

    def partition_count(self, name: str) -> int:
        with self.admin() as admin:
            return sum(len(topic["partitions"]) for topic in admin.describe_topics([name]))

    @contextlib.contextmanager
    def admin(self) -> Iterator[KafkaAdminClient]:
        client = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        try:
            yield client
        finally:
            client.close()

    @contextlib.contextmanager
    def producer(self, **options: object) -> Iterator[KafkaProducer]:
        """A producer whose records are all acknowledged when it is left without an error."""
        client = KafkaProducer(bootstrap_servers=self.bootstrap, **{"acks": "all", **options})
        try:
            yield client
            client.flush()
        finally:
            client.close()

    # --- the process ---

    def _write_settings(self, controller: int) -> None:
        places = {
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://{self.bootstrap},SECURED://{self.secured},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap},SECURED://{self.secured}",
            "listener.name.secured.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
            f'required user_{USER}="{PASSWORD}";',
            "listener.name.secured.ssl.keystore.type": "PEM",
            "listener.name.secured.ssl.keystore.location": str(self._keys),
            "log.dirs": str(self._folder / "data"),
        }
        lines = [f"{name}={value}\n" for name, value in {**SETTINGS, **places, **self._extra}.items()]
        self._settings_file.write_text("".join(lines))

    @property
    def _settings_file(self) -> Path:
        return self._folder / "server.properties"

    def _format(self) -> None:
        with self._java("kafka.tools.StorageTool", "format", "-t", self._cluster, "-c", self._settings_file) as run:
            if run.wait(READY_SECONDS) != 0:
                raise MissingTool(f"Kafka's storage could not be formatted:\n{run.tail()}")

    def _run(self) -> None:
        self._process = self._java("kafka.Kafka", self._settings_file)
        try:
            self._process.wait_for_line(READY_LINE, seconds=READY_SECONDS)
        except AssertionError as error:
            self._process.kill()
            raise MissingTool(f"Kafka did not start: {error}") from error

    def _java(self, *arguments: str | Path) -> ChildProcess:
        java = find_java().home / "bin" / "java"
        return ChildProcess([java, *JVM_OPTIONS, "-cp", f"{kafka_jars()}/*", *arguments], cwd=self._folder)
