"""The Spark session that tables are read with: the pipeline's own where it runs on Spark, else one started here.

An adapter is made in many processes and most of them never read a table, so the session is asked for as late as
possible. Spark tasks have none: what they read must not need it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from changesource_sdk.pipeline.spark.session import SparkSettings, standard_error_to, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_running() -> bool:
    """Whether this process has a session already."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def session() -> SparkSession:
    """The running session, or a new local one."""
    from pyspark.sql import SparkSession

    if is_running():
        return SparkSession.builder.getOrCreate()
    with standard_error_to(Path(os.devnull)):
        return start_session(SparkSettings("local[2]", {"spark.ui.enabled": "false"}))
