"""Every command of the pages is typed as it is printed, and does what the page says.

Only hosts, ports and folders are this machine's (`Reader.places`), and pipelines run in process except on the page
about Spark: the tutorial, the demo and the end-to-end tests run them on it.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

from tests.docs.fences import block, command, commands
from tests.support.fakes import avro
from tests.support.peers.kafka_broker import KafkaBroker
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.spark_cluster import standalone_cluster
from tests.support.peers.spark_serving import QUICK_START, SPARK_SECONDS
from tests.support.ports import free_port
from tests.support.reader import Reader, wait_for_page
from tests.support.tools import REPOSITORY
from tests.support.waiting import until
from tests.support.workloads.delta_lake import Lake, people
from tests.support.workloads.sqlite_store import SqliteStore

EVENTS = """from changesource_sdk import Column, Insert, RowsPartition, Snapshot, Table, Transaction


class Adapter:
    def __init__(self, path):
        self.path = path

    def rows(self):
        with open(self.path) as file:
            return [dict(zip(("id", "text"), line.split())) for line in file]

    def tables(self):
        return [Table("event", [Column("id", str), Column("text", str)])]

    def snapshot(self):
        rows = self.rows()
        return Snapshot(len(rows), [RowsPartition("event", rows)])

    def changes(self, after):
        for position, row in enumerate(self.rows()[after:], start=after + 1):
            yield Transaction(position, [Insert("event", row)])
"""
QUICK = shlex.join(QUICK_START)
TODO = '{"id": "a", "title": "write", "done": false}\n'


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    """Somebody with a SQLite database `app.db` in an otherwise empty folder."""
    made = Reader(tmp_path / "reading", places={"127.0.0.1:4810": f"127.0.0.1:{free_port()}"})
    made.environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    SqliteStore(made.folder / "app.db", "CREATE TABLE issue (id TEXT PRIMARY KEY)", "INSERT INTO issue VALUES ('1')")
    return made


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Spark cluster that stands for the one of a page."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as address:
        yield address


def test_the_readme_serves_its_adapter(reader: Reader) -> None:
    reader.write("todo_file.py", block("README.md", '"""A to-do list'))
    reader.write("todo.jsonl", TODO)
    with reader.serve(block("README.md", "changesource serve todo_file")) as address:
        assert "write" in reader.run(f"changesource tail {address} --from start --limit 1 --json")


def test_the_readmes_settings_and_command_run_a_cache(reader: Reader) -> None:
    reader.places |= {"postgres://…": "postgres://nobody@127.0.0.1/none", "/var/zero": str(reader.folder)}
    reader.export(block("README.md", "ZERO_UPSTREAM_TYPE=custom\n"))
    follows(reader, block("README.md", "ZERO_UPSTREAM_TYPE=custom ZERO_UPSTREAM_DB").strip())


def test_the_cache_of_the_page_follows_the_endpoint(reader: Reader) -> None:
    follows(reader, command("docs/how-to/run-the-cache.md", "ZERO_UPSTREAM_DB="))


def follows(reader: Reader, cache: str) -> None:
    """A cache is ready for clients once it has the endpoint's tables."""
    port = free_port()
    reader.environment |= {"ZERO_PORT": str(port), "CHANGESOURCE_CACHE_HOST": "127.0.0.1"}
    serve = command("docs/how-to/run-the-cache.md", "changesource serve sqlite")
    with reader.serve(serve), reader.start(cache, "ready for clients"):
        wait_for_page(f"http://127.0.0.1:{port}/")


def test_an_example_is_served_from_its_folder(reader: Reader) -> None:
    reader.run(block("docs/tutorial.md", "git init"))
    shutil.copytree(REPOSITORY / "examples", reader.folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    reader.places["/path/to/repository"] = str(reader.folder / "store")
    go, serve = commands(block("examples/README.md", "cd examples"))
    folder = reader.run(f"{go}\npwd").strip()
    reader.folder = Path(folder)
    with reader.serve(serve) as address:
        assert "tutorial" in reader.run(f"changesource tail {address} --from start --limit 1 --json")


def test_an_endpoint_runs_and_can_be_looked_at(reader: Reader) -> None:
    page = "docs/how-to/run-an-endpoint.md"
    reader.places["/var/lib/changesource"] = str(reader.folder / "state")
    reader.write("changesource.toml", block(page, 'adapter = "sqlite"'))
    inspect, tail, doctor = commands(block(page, "changesource inspect"))
    reader.run(doctor)
    with reader.serve(block(page, "changesource serve sqlite")):
        assert "pipeline" in reader.run(inspect)
        with reader.start(tail) as tailing:
            store, numbers = SqliteStore(reader.folder / "app.db"), count(2)

            def is_told() -> bool:
                store.run(f"INSERT INTO issue VALUES ('{next(numbers)}')")
                return any("issue" in line for line in tailing.lines)

            until(is_told, "a transaction to be told")


def test_a_database_of_sqlite_is_served_and_cleaned(reader: Reader) -> None:
    page = "docs/how-to/sqlite.md"
    ours = "SELECT name FROM sqlite_master WHERE name LIKE '_changesource%'"
    store = SqliteStore(reader.folder / "app.db")
    with reader.serve(block(page, "changesource serve sqlite")):
        assert store.query(ours)
    reader.run(block(page, "python -c"))
    assert store.query(ours) == []


def test_a_database_of_postgres_is_served_and_examined(reader: Reader, logical_postgres: PostgresServer) -> None:
    serve, doctor = commands(block("docs/how-to/postgres.md", "changesource serve postgres"))
    dsn = logical_postgres.create_database("page")
    reader.places["postgresql://user:password@host:5432/app"] = dsn
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE public.issue (id text PRIMARY KEY)")
    reader.run(doctor)
    with reader.serve(serve) as address:
        assert '"issue"' in reader.run(f"changesource tail {address} --from start --limit 1 --json")


@pytest.mark.slow
def test_a_log_in_postgres_is_served_by_two_endpoints_and_compacted(
    reader: Reader, postgres: PostgresServer, cluster: str
) -> None:
    pipeline, *endpoints = commands(block("docs/how-to/postgres-log.md", "changesource serve sqlite"))
    compact = command("docs/how-to/compaction.md", "changesource compact --log")
    reader.places |= {
        "postgresql://user@db/app": postgres.create_database("log"),
        "s3://bucket/spool": (reader.folder / "spool").as_uri(),
        "0.0.0.0:4810": f"127.0.0.1:{free_port()}",
        "0.0.0.0:4811": f"127.0.0.1:{free_port()}",
        "spark://host:7077": cluster,
    }
    states = [f"CHANGESOURCE_STATE=state{number} {command}" for number, command in enumerate((pipeline, *endpoints))]
    with reader.start(states[0]), reader.serve(states[1]) as one, reader.serve(states[2]) as other:
        seen = [reader.run(f"changesource tail {each} --from start --limit 1 --json") for each in (one, other)]
        sent = [[line for line in each.splitlines() if line.startswith('["data"')] for each in seen]
        assert any('"issue"' in line for line in sent[0])
        assert sent[0] == sent[1]
        reader.run(f"CHANGESOURCE_RUNNER=spark {compact}", seconds=SPARK_SECONDS)


def test_a_log_is_kept_short_and_compacted_by_hand(reader: Reader) -> None:
    page = "docs/how-to/compaction.md"
    as_serve_would = command(page, "changesource compact --state ./state")
    inline = command(page, "changesource compact --state ./state --runner inline")
    with reader.serve(block(page, "changesource serve sqlite")) as address:
        (*_, commit) = reader.run(f"changesource tail {address} --from start --limit 1 --json").splitlines()
        SqliteStore(reader.folder / "app.db").run("INSERT INTO issue VALUES ('2')")
        reader.run(f"changesource tail {address} --from {json.loads(commit)[2]['watermark']} --limit 1")
        assert "null" not in reader.run(f"{inline} --json")
        assert '"new":{"id":"2"}' in reader.run(f"changesource tail {address} --from start --limit 1 --json")
    assert "null" in reader.run(f"{as_serve_would} --json")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_runner_is_chosen_as_the_page_on_spark_says(reader: Reader, cluster: str) -> None:
    here, there, inline = commands(block("docs/how-to/spark.md", "changesource serve sqlite"))
    del reader.environment["CHANGESOURCE_RUNNER"]
    reader.places["spark://host:7077"] = cluster
    reader.places |= {"/data/": f"{reader.folder}/", "spark.executor.memory=2g": "spark.executor.memory=1g"}
    with reader.serve(inline):
        assert not (reader.folder / "state" / "spark.log").exists()
    for on_spark in (here, there):
        shutil.rmtree(reader.folder / "state")
        with reader.serve(f"{on_spark} {QUICK}", seconds=SPARK_SECONDS) as address:
            assert (reader.folder / "state" / "spark.log").exists()
            told = reader.run(f"changesource tail {address} --from start --limit 1 --json")
            assert '"new":{"id":"1"}' in told.replace(" ", "")


def test_an_endpoint_and_an_adapter_are_checked(reader: Reader) -> None:
    page = "docs/how-to/check-an-endpoint.md"
    reader.write("my_store.py", block("README.md", '"""A to-do list') + "\n\nMyStore = TodoFile\n")
    reader.write("data", TODO)
    told = reader.run(block(page, "changesource check my_store:MyStore").strip() + " --watch 0.5")
    assert "ok       initial sync" in told
    with reader.serve("changesource serve my_store:MyStore --set path=data --listen 127.0.0.1:4810"):
        told = reader.run(block(page, "changesource check ws://").strip() + " --watch 0.5")
        assert "ok       initial sync" in told
        reader.run(block(page, "changesource tail").strip() + " --limit 1")


def test_an_application_answers_queries_and_mutations_beside_the_cache(reader: Reader) -> None:
    page = "docs/how-to/named-queries-and-mutators.md"
    app, serve, *exports, cache = commands(block(page, "python app.py"))
    port = free_port()
    reader.places |= {"127.0.0.1:4900": f"127.0.0.1:{(answering := free_port())}", "port=4900": f"port={answering}"}
    reader.write("app.py", block(page, "# app.py"))
    reader.environment |= {"ZERO_PORT": str(port), "CHANGESOURCE_CACHE_HOST": "127.0.0.1"}
    reader.export("\n".join(exports))
    with (
        reader.start(app, "Running on"),
        reader.serve(serve),
        reader.start(cache, "ready for clients"),
    ):
        wait_for_page(f"http://127.0.0.1:{port}/")


def test_a_store_with_a_ledger_is_served(reader: Reader) -> None:
    reader.write("events.py", EVENTS)
    reader.write("events.log", "g/c/1 hello\n")
    with reader.serve(block("docs/how-to/mutation-ledger.md", "changesource serve events:Adapter")) as address:
        told = reader.run(f"changesource tail {address} --from start --limit 1 --json")
        assert "hello" in told
        assert '"clients"' in told


def test_topics_of_kafka_are_served_and_examined(reader: Reader, kafka: KafkaBroker) -> None:
    serve, doctor = commands(block("docs/how-to/kafka.md", "changesource serve kafka --set bootstrap=localhost"))
    name = kafka.topic_name("shop")
    reader.places |= {
        "localhost:9092": kafka.bootstrap,
        "shop.public": f"{name}.public",
        "shop.transaction": f"{name}.transaction",
    }
    orders = kafka.create_topic(f"{name}.public.orders")
    kafka.create_topic(f"{name}.transaction")
    with kafka.producer() as producer:
        producer.send(
            orders, key=b'{"id": 1}', value=b'{"op": "r", "before": null, "after": {"id": 1, "note": "first"}}'
        )
    reader.run(doctor)
    with reader.serve(serve) as address:
        assert "first" in reader.run(f"changesource tail {address} --from start --limit 1 --json")


def test_topics_of_avro_are_served(reader: Reader, kafka: KafkaBroker) -> None:
    variables, serve = commands(block("docs/how-to/kafka.md", "export SCHEMA_REGISTRY_URL"))
    topic = kafka.create_topic(kafka.topic_name("orders"))
    with kafka.producer() as producer:
        producer.send(topic, key=avro.key(1), value=avro.order(1, "first"))
    with avro.serving() as registry:
        reader.places |= {
            "http://registry:8081": registry,
            "examples/kafka_avro": os.pathsep.join((str(avro.DECODER_FOLDER), str(REPOSITORY))),
            "localhost:9092": kafka.bootstrap,
            "topics=orders": f"topics={topic}",
        }
        reader.export(variables)
        with reader.serve(serve) as address:
            assert "first" in reader.run(f"changesource tail {address} --from start --limit 1 --json")


def test_a_table_of_a_lake_is_served(reader: Reader) -> None:
    Lake(reader.folder / "orders", people((1, "Ada")))
    reader.places["/lake/orders"] = str(reader.folder / "orders")
    with reader.serve(block("docs/how-to/spark-tables.md", "changesource serve spark-tables")) as address:
        assert "Ada" in reader.run(f"changesource tail {address} --from start --limit 1 --json")
