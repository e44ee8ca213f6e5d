"""The benchmark of upstreams without a log measures what it says, at a small scale."""

from benchmarks.by_difference.__main__ import measure


def test_one_percent_of_the_rows_is_found_changed() -> None:
    figures = measure(5_000)
    changed = figures["changed"]
    assert (changed["updates"], changed["inserts"], changed["deletes"]) == (40, 5, 5)
    assert "updates" not in figures["unchanged"]
    assert figures["listing"]["rows"] == 5_000
    assert figures["met"]
