import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_cache.zql.planner.log_estimate import log_estimate, rows_of


@pytest.mark.parametrize(
    ("count", "log"), [(0, 0), (1, 0), (2, 10), (3, 16), (10, 33), (25, 46), (5000, 122), (1048576, 200)]
)
def test_counts_become_tenths_of_a_doubling(count: int, log: int) -> None:
    assert log_estimate(count) == log


@pytest.mark.parametrize(("log", "rows"), [(0, 1), (10, 2), (46, 24), (121, 4096), (122, 4608), (-10, 0.5)])
def test_estimates_become_counts(log: int, rows: float) -> None:
    assert rows_of(log) == rows


@given(st.integers(1, 10**9))
def test_rounding_stays_within_a_sixth(count: int) -> None:
    assert count * 5 / 6 <= rows_of(log_estimate(count)) <= count * 7 / 6
