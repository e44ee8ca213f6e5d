"""A Spark standalone cluster on this machine: a master and a worker, from the jars that come with PySpark.

Contract: once it is entered, the worker is registered, so that an application gets executors at once; at the end both
are gone, with what they started.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from changesource_sdk.pipeline.spark.java import find_java
from tests.support.child_process import ChildProcess
from tests.support.ports import free_port
from tests.support.tools import REPOSITORY

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
START_SECONDS = 120
HERE = "127.0.0.1"


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[str]:
    """The address of a master with one worker of two slots, which have this machine's Python and packages."""
    port = free_port()
    environment = {
        "JAVA_HOME": str(find_java().home),
        "SPARK_LOCAL_IP": HERE,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "PYTHONPATH": str(REPOSITORY),
    }
    where = ["--host", HERE, "--webui-port", "0"]
    deploy = "org.apache.spark.deploy"
    master: list[str | Path] = [SPARK_CLASS, f"{deploy}.master.Master", *where, "--port", str(port)]
    size = ["--cores", "2", "--memory", "3g", "--work-dir", str(folder)]
    worker: list[str | Path] = [SPARK_CLASS, f"{deploy}.worker.Worker", *where, *size, f"spark://{HERE}:{port}"]
    with ChildProcess(master, env=environment) as running:
        running.wait_for_line("New state: ALIVE", seconds=START_SECONDS)
        with ChildProcess(worker, env=environment):
            running.wait_for_line("Registering worker", seconds=START_SECONDS)
            yield f"spark://{HERE}:{port}"
