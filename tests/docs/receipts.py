"""A test that takes something from a page and does not run it fails: see `fences`."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.docs.fences import unpaid


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """Ask for the receipts at the end of every test; one that failed has no others to show."""
    try:
        yield
    except BaseException:
        unpaid()
        raise
    left = unpaid()
    assert left == [], "taken from a page and not run: run it, or look at it by fences.blocks_of"
