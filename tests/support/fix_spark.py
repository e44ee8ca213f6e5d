"""A real Spark session, started once for all tests that need one in their own process.

Whatever Spark a test or its processes start, starts quickly: half of the processor time of a start is compilation.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from changesource_sdk.pipeline.spark.session import SparkSettings, start_session
from tests.support.spark_serving import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

for _name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(_name, QUICK_JAVA)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Local Spark with two slots beside the resident task's."""
    # Tables of tests are small: more than two shuffled partitions only cost time.
    few = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    session = start_session(SparkSettings("local[3]", few))
    yield session
    session.stop()
