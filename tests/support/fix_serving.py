"""Fixtures of our side: `serving` makes endpoints as users run them, `store` makes the databases behind them.

The pipeline runs on the `inline` runner unless a test asks for `spark`: what these tests are about lies behind
the log, and a JVM per restart would only make them slow. Tests about the whole path run on both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.serving import Serving
from tests.support.sqlite_store import SqliteStore

MakeServing = Callable[..., Serving]
MakeStore = Callable[..., SqliteStore]


@contextmanager
def servings(folder: Path) -> Iterator[MakeServing]:
    """A function that makes endpoints over a SQLite store (not yet started); all end with the context."""
    with ExitStack() as stack:

        def make(
            store: SqliteStore,
            *,
            runner: str = "inline",
            state: Path | None = None,
            port: int | None = None,
            api_key: str | None = None,
            grace: float = 10.0,
        ) -> Serving:
            settings = {"path": str(store.path)}
            options = ("--permissions", "allow-all", "--runner", runner, "--grace", str(grace))
            made = Serving("sqlite", settings, state or folder / "state", port=port, api_key=api_key, options=options)
            stack.callback(_show, made)
            return stack.enter_context(made)

        yield make


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[MakeServing]:
    with servings(tmp_path) as make:
        yield make


@pytest.fixture
def store(tmp_path: Path) -> MakeStore:
    return lambda *statements, name="app.db": SqliteStore(tmp_path / name, *statements)


def _show(made: Serving) -> None:
    for number, run in enumerate(made.runs):
        print(f"--- serve run {number}, exit {run.code} ---\n{run.tail(60)}")
