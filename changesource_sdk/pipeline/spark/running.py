"""The Spark session of this process: the pipeline's own where it runs on Spark, else a local one, made when asked for.

An adapter is made in many processes and most of them never need Spark, so the session is asked for as late as
possible. Spark tasks have none: what they do must not need it.
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
    if is_running():
        from pyspark.sql import SparkSession

        return SparkSession.builder.getOrCreate()
    with standard_error_to(Path(os.devnull)):
        return start_session(SparkSettings("local[2]", {"spark.ui.enabled": "false"}))
