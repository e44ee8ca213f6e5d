"""The page on Kafka names every setting and every error, and its snippets work."""

from __future__ import annotations

import inspect
import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from adapters.kafka import KafkaAdapter
from adapters.kafka.settings import PASSED_ON, KafkaSettings
from adapters.kafka.types import ENCODINGS
from changesource_cli.adapter_choice import try_settings
from changesource_sdk.config import parse_pairs
from tests.docs.fences import as_module, blocks, blocks_of, configuration
from tests.support.peers.kafka_broker import KafkaBroker

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to" / "kafka.md").read_text()
SOURCES = [path.read_text() for path in (ROOT / "adapters" / "kafka").rglob("*.py")]


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def documents() -> list[dict[str, Any]]:
    return [{"set": configuration(text).settings} for text in blocks("docs/how-to/kafka.md", "toml")]


def test_the_security_settings_of_the_page_are_taken() -> None:
    given = documents()[0]["set"]
    client = {name: value for name, value in given.items() if name.startswith(PASSED_ON)}
    assert len(client) == 5
    assert KafkaSettings.parse(**given).client == client


def test_the_commands_of_the_page_have_settings_that_are_taken() -> None:
    lines = [part for block in blocks_of("docs/how-to/kafka.md") if block.is_shell for part in block.parts]
    commands = [shlex.split(line) for line in lines if line.startswith("changesource ")]
    assert [words[1:3] for words in commands] == [["serve", "kafka"], ["doctor", "kafka"], ["serve", "kafka"]]
    for words in commands:
        pairs = [value for flag, value in pairwise(words) if flag == "--set"]
        assert try_settings(KafkaAdapter, parse_pairs(pairs)) is None


def test_every_setting_is_in_the_table() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", section("Settings"), re.MULTILINE)
    assert rows == list(inspect.signature(KafkaSettings.parse).parameters)


def test_every_error_is_on_the_page() -> None:
    raised = r'(?:Error|ResyncRequired|_bad)\(\s*"([a-z]+-[a-z-]+)"'
    codes = {code for source in SOURCES for code in re.findall(raised, source)}
    assert len(codes) > 10
    assert sorted(code for code in codes if f"`{code}`" not in PAGE) == []


def test_the_tables_of_the_page_are_understood() -> None:
    tables = documents()[1]["set"]["tables"]
    settings = KafkaSettings.parse("localhost:9092", "shop.*", tables=tables)
    assert settings.options("shop.public.orders").columns["made"].encoding == "micros"
    assert settings.options("settings").key_format == "text"


@pytest.mark.parametrize("encoding", [*ENCODINGS, "decimal:N"])
def test_every_encoding_is_named(encoding: str) -> None:
    assert f"`{encoding}`" in section("Tables")


def test_the_decoder_of_the_page_decodes(kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python of kafka.md, as a module that the setting names."""
    (source,) = blocks("docs/how-to/kafka.md", "python")
    as_module(source, tmp_path / "csv_of_the_page.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    topic = kafka.create_topic(kafka.topic_name("people"))
    with kafka.producer() as producer:
        producer.send(topic, key=b"7", value=b"7,Ada")
    # Declared, since columns would be looked for by Spark's workers, where this test's folder is unknown.
    tables: dict[str, Any] = {"people": {"topic": topic, "columns": {"id": "text", "name": "text"}, "key": "id"}}
    adapter = KafkaAdapter(kafka.bootstrap, topic, format="upsert", decoder="csv_of_the_page:Csv", tables=tables)
    rows = [row for partition in adapter.snapshot().partitions for row in partition.rows()]
    assert rows == [{"id": "7", "name": "Ada"}]
