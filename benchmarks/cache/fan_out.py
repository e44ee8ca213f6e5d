"""Many client groups with a 100-row query each: how fast they hydrate, what they cost, how fast changes reach them all.

*Delivered*: a burst of single-row commits; the clock runs from the first commit until every client has every row. That
is the rate a cache can sustain, since each client must get each change. Ours is then driven at ten times the official's
rate for a while, and the time from a commit until its poke has arrived is measured at some of the clients.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from benchmarks.cache.caches import Measured, running
from benchmarks.cache.clients import Swarm
from benchmarks.cache.comparison import compared, percentile
from benchmarks.cache.session import Session, session
from benchmarks.cache.workload import BUCKET_ROWS

MEMORY_TARGET = 100 * 1024
LATENCY_TARGET_MS = 100.0
PATIENCE_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class Plan:
    """`spread` is the number of distinct queries: one for all groups, or one each. Both caches get the same burst."""

    groups: int
    spread: int
    burst: int
    paced_seconds: float
    target: float
    hydration_target: float = 10.0


@dataclass(slots=True)
class Figures:
    """Of one cache."""

    hydration_seconds: float
    bytes_per_group: float
    delivered: float
    cpu_per_change: float
    """Seconds of processor time per delivered change, replicator included: it varies less than the rate does."""
    latency: dict[str, Any] | None = None


def measure(plan: Plan) -> dict[str, Any]:
    """Both caches, one after the other, each with an endpoint of its own."""
    official = _figures("official", plan, rate=None)
    ours = _figures("ours", plan, rate=10 * official.delivered)
    hydration = {"official": plan.groups / official.hydration_seconds, "ours": plan.groups / ours.hydration_seconds}
    return {
        "groups": plan.groups,
        "distinctQueries": plan.spread,
        "burst": plan.burst,
        "changesDelivered": compared({"official": official.delivered, "ours": ours.delivered}, at_least=plan.target),
        "cpuMicrosecondsPerChange": {
            "official": round(official.cpu_per_change * 1e6, 1),
            "ours": round(ours.cpu_per_change * 1e6, 1),
        },
        "groupsHydratedPerSecond": compared(hydration, at_least=plan.hydration_target),
        "bytesPerIdleGroup": {
            "official": round(official.bytes_per_group),
            "ours": round(ours.bytes_per_group),
            "target": MEMORY_TARGET,
            "met": ours.bytes_per_group < MEMORY_TARGET,
        },
        "latencyAtTenTimesTheOfficialRate": ours.latency,
    }


def _figures(name: str, plan: Plan, rate: float | None) -> Figures:
    rows = max(plan.spread, 10) * BUCKET_ROWS
    with session(rows=rows, spread=plan.spread) as served, running(name, served.url, served.folder) as cache:
        with _one_client(cache):
            before = cache.memory()
        begun = time.perf_counter()
        with Swarm(cache.port, [group % plan.spread for group in range(plan.groups)], run="many") as swarm:
            swarm.until(swarm.all_have_query, "all queries hydrated", PATIENCE_SECONDS)
            hydrated = time.perf_counter() - begun
            each = (cache.memory() - before) / plan.groups
            cpu = cache.cpu_seconds()
            delivered = _burst(served, swarm, plan)
            cpu = (cache.cpu_seconds() - cpu) / (plan.burst - plan.burst % plan.spread)
            latency = None if rate is None else _paced(served, swarm, plan, rate)
    return Figures(hydrated, each, delivered, cpu, latency)


def _one_client(cache: Measured) -> Swarm:
    """A first client, so that what the first one costs is not counted as a group's."""
    first = Swarm(cache.port, [0], run="one")
    first.until(first.all_have_query, "the first query hydrated", PATIENCE_SECONDS)
    return first


def _burst(served: Session, swarm: Swarm, plan: Plan) -> float:
    changes = plan.burst - plan.burst % plan.spread
    wanted = swarm.fewest_rows() + changes // plan.spread
    begun = time.perf_counter()
    served.commit(changes)
    swarm.until(lambda: swarm.fewest_rows() >= wanted, f"{changes} changes at all clients", PATIENCE_SECONDS)
    swarm.latencies()
    return changes / (time.perf_counter() - begun)


def _paced(served: Session, swarm: Swarm, plan: Plan, rate: float) -> dict[str, Any]:
    begun_at = served.released
    rows = swarm.fewest_rows()

    def commit_what_is_due(passed: float) -> None:
        due = begun_at + int(rate * passed) - served.released
        if due > 0:
            served.commit(due)

    swarm.run_for(plan.paced_seconds, commit_what_is_due)
    served.commit(-(served.released - begun_at) % plan.spread)
    wanted = rows + (served.released - begun_at) // plan.spread
    swarm.until(lambda: swarm.fewest_rows() >= wanted, "the last paced change at all clients", PATIENCE_SECONDS)
    found = swarm.latencies()
    p99 = percentile(found, 0.99)
    return {
        "changesPerSecond": round(rate, 1),
        "p50Ms": round(percentile(found, 0.5), 1),
        "p99Ms": round(p99, 1),
        "samples": len(found),
        "target": LATENCY_TARGET_MS,
        "met": p99 < LATENCY_TARGET_MS,
    }
