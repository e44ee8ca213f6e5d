"""`python -m benchmarks.many_sources`: one log with four sources, compared with one source that does the same work.

The same transactions come from one source, or a quarter of them from each of four. Throughput: all are there from the
start; transactions per second until the last is durable. Rounds of one and of four alternate, and the better half of
each counts, since other programs use the machine, too. Latency: they come at a rate; milliseconds from the moment a
transaction is due until a reader of the log has it. Both pipelines run at the same time, so that they share what else
the machine does. Target: four reach 0.9 of one in both.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from threading import Barrier
from typing import Literal

from benchmarks.run import Parts, run
from changesource_sdk.changelog.sqlite.store import SqliteLogStore
from changesource_sdk.pipeline.settings import PipelineSettings, command_line
from changesource_sdk.pipeline.source import SourceSpec

TARGET = 0.9
SOURCES = 4
ROUNDS = 4
RATE = 100.0
"""Transactions per second and pipeline while latency is measured."""
READY_S = 120.0
_READ_BYTES = 4 << 20
Runner = Literal["inline", "spark"]


@contextmanager
def pipeline(runner: Runner, state: Path, names: list[str], count: int, rate: float) -> Iterator[SqliteLogStore]:
    """A pipeline whose sources wait for the file `go`; `names` is empty for a single source without a name."""
    go = str(state / "go")
    shares = max(1, len(names))

    def spec(table: str, number: int) -> SourceSpec:
        # Their phases differ, so that transactions come as evenly as from one source.
        paced = {"rate": str(rate / shares), "phase": str(number / shares)}
        settings = {"table": table, "count": str(count // shares), "go": go, **paced}
        return SourceSpec("benchmarks.many_sources.load:LoadAdapter", settings)

    one = None if names else spec("only", 0)
    settings = PipelineSettings(one, runner, master="local[2]", conf={"spark.ui.enabled": "false"})
    settings = replace(settings, sources=[replace(spec(name, at), name=name) for at, name in enumerate(names)])
    child = subprocess.Popen(command_line(settings, state), stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        yield SqliteLogStore(state)
    finally:
        assert child.stdin is not None
        child.stdin.close()
        child.wait(60)


def seen(
    runner: Runner, names: list[str], count: int, rate: float, together: Barrier | None = None
) -> tuple[float, list[float]]:
    """Run one round; the seconds it took from the file to the last transaction, and the lag of each in milliseconds.

    `together` is passed when the sources are ready.
    """
    with (
        tempfile.TemporaryDirectory(prefix="changesource-benchmark-") as folder,
        pipeline(runner, Path(folder), names, count, rate) as store,
        closing(store.open_log()) as log,
        closing(store.listen()) as listener,
    ):
        _until_all_follow(store, names)
        if together is not None:
            together.wait()
        after = log.state().head
        began = time.time()
        staged = Path(folder) / "go.staged"
        staged.write_text(str(began))
        staged.rename(Path(folder) / "go")
        lags: list[float] = []
        while len(lags) < count:
            transactions = log.read_after(after, _READ_BYTES)
            now = time.time() * 1000
            for stored in transactions:
                lags.append(now - (stored.commit_time_ms or now))
                after = stored.watermark
            if not transactions:
                listener.wait(1.0)
        return time.time() - began, lags


def _until_all_follow(store: SqliteLogStore, names: list[str]) -> None:
    stages = [f"source-{name}" for name in names] or ["pipeline"]
    deadline = time.monotonic() + READY_S
    while True:
        reports = store.reports.all()
        if all(reports.get(stage, {}).get("state") == "tailing" for stage in stages):
            return
        assert time.monotonic() < deadline, f"not ready: {reports}"
        time.sleep(0.05)


def compared(runner: Runner, scale: float) -> dict[str, object]:
    """Figures of one and of four sources, and whether four reach the target."""
    four = [f"s{number}" for number in range(SOURCES)]
    work, paced = int(40_000 * scale), int(RATE * 10 * scale)
    rates: dict[str, list[float]] = {"one": [], "four": []}
    lags: dict[str, list[list[float]]] = {"one": [], "four": []}
    for _ in range(ROUNDS):
        for name, names in (("one", []), ("four", four)):
            rates[name].append(work / seen(runner, names, work, 0.0)[0])
        with ThreadPoolExecutor() as threads:
            together = Barrier(2)
            both = [threads.submit(seen, runner, names, paced, RATE, together) for names in ([], four)]
        for name, result in zip(lags, both, strict=True):
            lags[name].append(result.result()[1])
    throughput = {name: round(median(sorted(each)[ROUNDS // 2 :])) for name, each in rates.items()}
    medians = {name: round(median(sorted(map(median, each))[: ROUNDS // 2]), 2) for name, each in lags.items()}
    p99 = {
        name: round(median(sorted(quantiles(each, n=100)[98] for each in rounds)[: ROUNDS // 2]), 2)
        for name, rounds in lags.items()
    }
    ratios = {"throughput": throughput["four"] / throughput["one"], "latency": medians["one"] / medians["four"]}
    return {
        "transactionsPerSecond": throughput,
        "latencyMs": {"median": medians, "p99": p99},
        "ratios": {name: round(ratio, 3) for name, ratio in ratios.items()},
        "met": all(ratio >= TARGET for ratio in ratios.values()),
    }


def parts_at(scale: float) -> Parts:
    """Both runners."""
    return {"inline": lambda: compared("inline", scale), "spark": lambda: compared("spark", scale)}


if __name__ == "__main__":
    sys.exit(run("many_sources", __doc__, parts_at, sources=SOURCES, rounds=ROUNDS, target=TARGET))
