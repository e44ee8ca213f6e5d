"""A runner on the tests' Spark session, until the end of the block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.pipeline.source import SourceSpec
from changesource_sdk.pipeline.spark.runner import SparkRunner
from service_kit.backoff import Backoff
from tests.changesource_sdk.pipeline.runner_fixtures import Watched, watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A task of Spark may start a Python process first, beside whatever else the machine does.
PATIENCE_S = 180.0


@contextmanager
def on_spark(session: SparkSession, source: SourceSpec, state: Path | LogStore) -> Iterator[Watched]:
    """Follow a source, with its log in `state`."""
    store = SqliteLogStore(state) if isinstance(state, Path) else state
    runner = SparkRunner(session, source, store, backoff=Backoff(first_s=0.05, last_s=0.2))
    with watched(runner, store, PATIENCE_S) as seen:
        yield seen
