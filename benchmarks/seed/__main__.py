"""`python -m benchmarks.seed`: building a seed, and a cache that is ready from one.

| part | what is measured | target |
| --- | --- | --- |
| `build` | rows per second of `changesource seed` on two cores, start of Spark included, by the raw limit | 0.6 × |
| `memory` | the most memory of an inline build, for a fifth of the rows and for all of them | flat: within 64 MB |
| `ready` | from an empty folder to an official zero-cache that takes clients: fetched seed, own initial sync | 8 × |

Exit code 1 when a target is missed. `--scale` shrinks everything; only a run at scale 1 measures the targets.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.run import run
from benchmarks.seed import raw_limit
from tests.support.peers.postgres_server import PostgresServer
from tests.support.peers.serving import Serving
from tests.support.peers.zero_cache import ZeroCache
from tests.support.tools import COMPILED, REPOSITORY

ROWS = 5_000_000
ADAPTER = "benchmarks.seed.workload:Issues"
SHARE_OF_LIMIT, FASTER, FLAT_BYTES = 0.6, 8.0, 64 * 1024 * 1024
SYNC_SECONDS = 3600.0
SPARK = ("--runner", "spark", "--master", "local[2]")
INLINE = ("--runner", "inline")


@contextmanager
def served(rows: int) -> Iterator[tuple[Path, Serving]]:
    """A folder with scratch space, and an endpoint whose log has one snapshot."""
    with TemporaryDirectory(prefix="changesource-bench-") as folder:
        options = ("--permissions", "allow-all", "--runner", "inline")
        settings = {"rows": str(rows), "gate": f"{folder}/gate"}
        with Serving(ADAPTER, settings, Path(folder) / "state", options=options) as endpoint:
            endpoint.start(seconds=SYNC_SECONDS)
            yield Path(folder), endpoint


def command(*arguments: object) -> dict[str, Any]:
    """Run a command of ours; its JSON, its seconds, and the most memory of its process and of those it waited for."""
    words = [sys.executable, "-m", "changesource_cli", *map(str, arguments), "--json"]
    begun = time.perf_counter()
    with subprocess.Popen(words, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        output = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{words} ended with {child.returncode}")
    seconds = time.perf_counter() - begun
    return {**json.loads(output.splitlines()[-1]), "seconds": round(seconds, 2), "peakBytes": usage.ru_maxrss * 1024}


def seed(folder: Path, endpoint: Serving, *options: str) -> dict[str, Any]:
    """Build a seed as a file and delete it."""
    target = folder / "built.db"
    made = command("seed", "--state", endpoint.state, "--replica", target, "--permissions", "allow-all", *options)
    for path in folder.glob("built.db*"):
        path.unlink()
    made["rowsPerSecond"] = round(made["rows"] / made["seconds"])
    return {name: made[name] for name in ("rows", "bytes", "seconds", "rowsPerSecond", "peakBytes")}


def build(rows: int) -> dict[str, Any]:
    """Spark and inline, next to the raw limit."""
    with served(rows) as (folder, endpoint):
        limit = raw_limit.measure(endpoint.state, folder / "raw.db")
        spark, inline = seed(folder, endpoint, *SPARK), seed(folder, endpoint, *INLINE)
    share = spark["rowsPerSecond"] / limit["rowsPerSecond"]
    of_inline = inline["rowsPerSecond"] / limit["rowsPerSecond"]
    return {
        "rawLimit": limit,
        "spark": spark,
        "inline": inline,
        "shareOfLimit": round(share, 2),
        "shareOfLimitInline": round(of_inline, 2),
        "met": share >= SHARE_OF_LIMIT,
    }


def memory(rows: int) -> dict[str, Any]:
    """The most memory of inline builds of two sizes."""
    peaks = []
    for size in (rows // 5, rows):
        with served(size) as (folder, endpoint):
            peaks.append(seed(folder, endpoint, *INLINE)["peakBytes"])
    return {"rows": [rows // 5, rows], "peakBytes": peaks, "met": peaks[1] - peaks[0] <= FLAT_BYTES}


def ready(rows: int) -> dict[str, Any]:
    """The official zero-cache from a seed, then by itself, from the same endpoint."""
    with served(rows) as (folder, endpoint), PostgresServer() as postgres:
        made = command("seed", "--state", endpoint.state, "--upload", folder / "seeds", *SPARK)
        seeded = _cache(folder / "seeded", endpoint, postgres)
        begun = time.perf_counter()
        command("fetch-seed", folder / "seeds", seeded.replica.path, "--endpoint", endpoint.stream_url)
        fetched = time.perf_counter() - begun
        with seeded:
            seeded.start(seconds=SYNC_SECONDS)
            by_seed = time.perf_counter() - begun
            assert seeded.replica.query("SELECT count(*) FROM issue") == [(rows,)]
        itself = _cache(folder / "itself", endpoint, postgres)
        begun = time.perf_counter()
        with itself:
            itself.start(seconds=SYNC_SECONDS)
            by_itself = time.perf_counter() - begun
    return {
        "rows": rows,
        "compressedBytes": made["compressedBytes"],
        "bytes": made["bytes"],
        "buildAndUploadSeconds": made["seconds"],
        "fetchSeconds": round(fetched, 2),
        "readyFromSeedSeconds": round(by_seed, 2),
        "readyByItselfSeconds": round(by_itself, 2),
        "times": round(by_itself / by_seed, 1),
        "met": by_itself / by_seed >= FASTER,
    }


def _cache(folder: Path, endpoint: Serving, postgres: PostgresServer) -> ZeroCache:
    folder.mkdir()
    settings = {"NODE_COMPILE_CACHE": str(COMPILED)}
    return ZeroCache(endpoint.stream_url, postgres.create_database(), folder, settings=settings)


def _parts(scale: float) -> dict[str, Callable[[], dict[str, Any]]]:
    rows = max(1000, round(ROWS * scale))
    return {"build": lambda: build(rows), "memory": lambda: memory(rows), "ready": lambda: ready(rows)}


if __name__ == "__main__":
    sys.exit(run("seed", __doc__, _parts))
