"""A real Spark session, started once for all tests that need one in their own process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from changesource_sdk.pipeline.spark.session import SparkSettings, start_session
from tests.support.spark_serving import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Local Spark with two slots beside the resident task's."""
    # Tables of tests are small: more than two shuffled partitions only cost time.
    few = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    session = start_session(SparkSettings("local[3]", few | QUICK_JAVA))
    yield session
    session.stop()
