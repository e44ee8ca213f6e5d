"""The engine against both oracles: a sample on every run, the rest in `make oracle`; and every failure found so far."""

from __future__ import annotations

from pathlib import Path

import pytest

from reference_cache.zql.ivm.operators.join import Join
from reference_cache.zql.ivm.operators.take import Take
from tests.oracle.cases import REGRESSIONS, load, make_case
from tests.oracle.check import Disagreement, check_case
from tests.oracle.engine import VARIANTS, Variant

FIRST_SEED = 50_000


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_random_queries_hydrate_to_what_the_oracles_say(variant: Variant) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + 5):
        check_case(make_case(seed, queries=5, transactions=0), variant.start)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_random_scenarios_stay_equal_to_the_oracles(variant: Variant) -> None:
    for seed in range(FIRST_SEED + 100, FIRST_SEED + 104):
        check_case(make_case(seed, queries=2, transactions=5), variant.start)


@pytest.mark.parametrize("path", sorted(REGRESSIONS.glob("engine-*.json")), ids=lambda path: path.stem)
def test_a_failure_once_found_stays_fixed(path: Path) -> None:
    case = load(path)
    for variant in VARIANTS:
        check_case(case, variant.start)


def _some_case_fails() -> bool:
    for seed in range(60):
        try:
            check_case(make_case(seed, queries=3, transactions=6), VARIANTS[0].start)
        except (Disagreement, RuntimeError):
            return True
    return False


def test_a_limit_that_forgets_to_refill_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Take, "_replace", lambda self, window: None)
    assert _some_case_fails()


def test_a_join_that_ignores_its_children_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Join, "_push_each", lambda self, parents, change, key, change_of: None)
    assert _some_case_fails()
