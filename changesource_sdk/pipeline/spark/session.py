"""The Spark session of a pipeline process: master, settings, start and stop.

One session per driver process. The defaults suit tasks that never end: failed tasks are tried again, none is run twice
at once, jobs share the slots fairly, and a local master always keeps a slot free for jobs next to
the resident task. A user's `--conf` overrides every one of them.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from changesource_sdk.errors import ConfigurationError
from changesource_sdk.pipeline.spark.java import find_java
from service_kit.private_files import opener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_TRIES = 4
LOG_FILE = "spark.log"
"""Where what the JVM says is kept, in the state directory."""

_LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,(\d+))?\])?")
_REACH_SECONDS = 3.0

_DEFAULTS = {
    "spark.log.level": "ERROR",
    "spark.scheduler.mode": "FAIR",
    "spark.speculation": "false",
    "spark.task.maxFailures": str(TASK_TRIES),
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """What a user may say about Spark."""

    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    app_name: str = "changesource"
    resident_tasks: int = 1  # that may run at once


def start_session(settings: SparkSettings) -> SparkSession:
    """A running session; an unusable Java or an unreachable master is an error before Spark is started."""
    java = find_java()
    check_master(settings.master)
    _require_pyspark()
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(java.home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(settings.app_name).master(
        resolve_master(settings.master, settings.resident_tasks)
    )
    for key, value in (_DEFAULTS | _local_conf(settings.master) | dict(settings.conf)).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    _mute_sql_errors()
    return session


def has_spark_session() -> bool:
    """Whether this process has a session already."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def spark_session() -> SparkSession:
    """Return the session of this process: the pipeline's own where it runs on Spark, else a local one, made here.

    Call it as late as possible: adapters are made in many processes, and most of them never need Spark. Do not call it
    in Spark tasks, which have no session.
    """
    if has_spark_session():
        from pyspark.sql import SparkSession

        return SparkSession.builder.getOrCreate()
    with standard_error_to(Path(os.devnull)):
        return start_session(SparkSettings("local[2]", {"spark.ui.enabled": "false"}))


@contextmanager
def standard_error_to(path: Path) -> Iterator[None]:
    """Processes started meanwhile, the JVM above all, write to a file instead of our standard error."""
    sys.stderr.flush()
    own = os.dup(2)
    with open(path, "ab", buffering=0, opener=opener) as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)


def _mute_sql_errors() -> None:
    """PySpark prints a page for every failed expression; what it says reaches the user as a proper error."""
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True


def _require_pyspark() -> None:
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise ConfigurationError(
            "pyspark-missing",
            "the Spark runner needs PySpark, which is not installed",
            fix="pip install 'zero-changesource[spark]', or run without Spark: --runner inline",
        ) from error


def resolve_master(master: str, resident_tasks: int = 1) -> str:
    """The master as Spark gets it: a local one has a slot more than resident tasks need, and tries tasks again."""
    local = _LOCAL.fullmatch(master)
    if local is None:
        return master
    slots, tries = local.groups()
    wanted = os.cpu_count() or 1 if slots == "*" else int(slots or 1)
    return f"local[{max(resident_tasks + 1, wanted)},{tries or TASK_TRIES}]"


def _local_conf(master: str) -> dict[str, str]:
    """A master on this machine stays on the loopback address, whatever the host's name resolves to."""
    if not master.startswith("local"):
        return {}
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")
    return {"spark.driver.host": "localhost", "spark.driver.bindAddress": "127.0.0.1"}


def check_master(master: str) -> None:
    """Refuse a master that Spark would not know or that does not answer, instead of minutes of Spark's own retries."""
    if master.startswith("spark://"):
        addresses = [address for address in master.removeprefix("spark://").split(",") if address]
        if not any(_answers(address) for address in addresses):
            raise ConfigurationError(
                "master-unreachable",
                f"no Spark master answers at {master}",
                where="--master",
                fix="start the master, correct the address, or use --master 'local[*]'",
            )
    elif not _LOCAL.fullmatch(master) and not master.startswith(("local-cluster[", "yarn", "k8s://")):
        raise ConfigurationError(
            "master-unknown",
            f"Spark knows no master {master!r}",
            where="--master",
            fix="use local[*], spark://host:port, yarn or k8s://https://host:port",
        )


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=_REACH_SECONDS):
            return True
    except (OSError, ValueError):
        return False
