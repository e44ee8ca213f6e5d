"""`python -m tests.oracle`: many random queries and change scenarios through the engine, against both oracles.

Knobs, all from the environment: `ORACLE_QUERIES` (10000), `ORACLE_SCENARIOS` (1000), `ORACLE_SEED` (the first seed, 1),
`ORACLE_WORKERS` (processes; one per core).  Queries are hydrated only, ten to a world; a scenario is up to four queries
on shared tables, coming and going, and ten transactions.  Sources, routing and planning take turns with the seed.  A
failure is made small and saved under tests/regressions, where every test run replays it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from tests.oracle.cases import make_case, save
from tests.oracle.check import check_case
from tests.oracle.engine import VARIANTS, Variant
from tests.oracle.minimise import minimise
from tests.oracle.worlds import Json

QUERIES_PER_WORLD = 10
TRANSACTIONS = 10


class Trial(NamedTuple):
    """A case to be made and run."""

    seed: int
    queries: int
    transactions: int

    def case(self) -> Json:
        return make_case(self.seed, queries=self.queries, transactions=self.transactions)

    def variant(self) -> Variant:
        return VARIANTS[self.seed % len(VARIANTS)]


def main() -> int:
    queries, scenarios = _knob("ORACLE_QUERIES", 10_000), _knob("ORACLE_SCENARIOS", 1_000)
    seed, workers = _knob("ORACLE_SEED", 1), _knob("ORACLE_WORKERS", os.cpu_count() or 1)
    print(f"{queries} queries and {scenarios} scenarios from seed {seed}", flush=True)
    begun = time.monotonic()
    done = failed = 0
    trials = list(_trials(seed, queries, scenarios))
    with ProcessPoolExecutor(workers) as pool:
        for trial, problem in zip(trials, pool.map(run, trials, chunksize=10), strict=True):
            done += 1
            if problem is not None:
                failed += 1
                print(f"seed {trial.seed} on {trial.variant()}: {problem}\nsaved as {_save(trial)}", flush=True)
            if not done % 100:
                print(f"{done} cases, {failed} failed, {time.monotonic() - begun:.0f} s", flush=True)
    print(
        f"{done - failed} passed, {failed} failed in {time.monotonic() - begun:.0f} s; "
        f"seeds {seed} to {trials[-1].seed}"
    )
    return 1 if failed else 0


def _knob(name: str, default: int) -> int:
    return int(os.environ.get(name, default))


def _trials(seed: int, queries: int, scenarios: int) -> Iterator[Trial]:
    worlds = -(-queries // QUERIES_PER_WORLD)
    for number in range(worlds):
        yield Trial(seed + number, QUERIES_PER_WORLD, 0)
    for number in range(worlds, worlds + scenarios):
        yield Trial(seed + number, 1 + number % 4, TRANSACTIONS)


def run(trial: Trial) -> str | None:
    """What went wrong, if anything."""
    problem = _problem(trial.case(), trial.variant())
    return None if problem is None else f"{type(problem).__name__}: {problem}"


def _problem(case: Json, variant: Variant) -> Exception | None:
    try:
        check_case(case, variant.start)
    except Exception as problem:
        return problem
    return None


def _save(trial: Trial) -> object:
    variant = trial.variant()
    kind = type(_problem(trial.case(), variant))
    small = minimise(trial.case(), lambda smaller: isinstance(_problem(smaller, variant), kind))
    return save({**small, "variant": variant._asdict()})


if __name__ == "__main__":
    sys.exit(main())
