"""`python -m tests.oracle`: many random queries and change scenarios through the engine, against both oracles.

Knobs, all from the environment: `ORACLE_QUERIES` (10000), `ORACLE_SCENARIOS` (1000), `ORACLE_SEED` (the first seed, 1),
`ORACLE_MINUTES` (0 = no bound).  Queries are hydrated only, ten to a world; a scenario is up to four queries on shared
tables and ten transactions.  Sources, routing and planning take turns with the seed.  A failure is made small and saved
under tests/regressions, where every test run replays it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

from tests.oracle.cases import make_case, save
from tests.oracle.check import check_case
from tests.oracle.engine import VARIANTS, Variant
from tests.oracle.minimise import minimise
from tests.oracle.worlds import Json

QUERIES_PER_WORLD = 10


def main() -> int:
    queries, scenarios = _knob("ORACLE_QUERIES", 10_000), _knob("ORACLE_SCENARIOS", 1_000)
    seed, minutes = _knob("ORACLE_SEED", 1), _knob("ORACLE_MINUTES", 0)
    print(f"{queries} queries and {scenarios} scenarios from seed {seed}")
    begun = time.monotonic()
    failed = done = 0
    for case in _cases(seed, queries, scenarios):
        if minutes and time.monotonic() - begun > minutes * 60:
            print(f"stopped after {minutes} minutes")
            break
        failed += not _passes(case)
        done += 1
        if not done % 100:
            print(f"{done} cases, {failed} failed, seed {case['seed']}, {time.monotonic() - begun:.0f} s", flush=True)
    print(f"{done - failed} passed, {failed} failed in {time.monotonic() - begun:.0f} s")
    return 1 if failed else 0


def _knob(name: str, default: int) -> int:
    return int(os.environ.get(name, default))


def _cases(seed: int, queries: int, scenarios: int) -> Iterator[Json]:
    worlds = -(-queries // QUERIES_PER_WORLD)
    for number in range(worlds):
        yield make_case(seed + number, queries=QUERIES_PER_WORLD, transactions=0)
    for number in range(worlds, worlds + scenarios):
        yield make_case(seed + number, queries=1 + number % 4, transactions=10)


def _passes(case: Json) -> bool:
    variant = VARIANTS[case["seed"] % len(VARIANTS)]
    problem = _problem(case, variant)
    if problem is None:
        return True
    print(f"seed {case['seed']} on {variant}: {type(problem).__name__}: {problem}")
    small = minimise(case, lambda smaller: isinstance(_problem(smaller, variant), type(problem)))
    path = save({**small, "variant": variant._asdict()})
    print(f"saved as {path}")
    return False


def _problem(case: Json, variant: Variant) -> Exception | None:
    try:
        check_case(case, variant.start)
    except Exception as problem:
        return problem
    return None


if __name__ == "__main__":
    sys.exit(main())
