"""Figures of each operator of a pipeline: streams opened, nodes yielded, changes pushed, seconds used.

`Meters.wrap` is a hook for `build.Host`: it puts a `Metered` around every operator. Times include everything an
operator caused upstream (fetch) or downstream (push), so a parent in the tree is never cheaper than its inputs.
Only `explain` builds pipelines with meters; others have no cost from them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from reference_cache.zql.ivm.change import YIELD, Change, Node, Stream
from reference_cache.zql.ivm.operator import Input, InputSchema, Push, Request
from reference_cache.zql.schema import Row

Clock = Callable[[], float]


@dataclass(slots=True)
class Meter:
    """One operator's figures; seconds."""

    label: str
    fetches: int = 0
    rows_fetched: int = 0
    changes_pushed: int = 0
    fetch_seconds: float = 0.0
    push_seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.label}: {self.fetches} fetches, {self.rows_fetched} rows in {self.fetch_seconds * 1000:.2f} ms; "
            f"{self.changes_pushed} changes in {self.push_seconds * 1000:.2f} ms"
        )


class Metered:
    """Wraps an input and counts what passes; behaves exactly like the input."""

    def __init__(self, input: Input, meter: Meter, clock: Clock) -> None:
        self._input = input
        self._meter = meter
        self._clock = clock

    @property
    def schema(self) -> InputSchema:
        return self._input.schema

    def node(self, row: Row) -> Node:
        return self._input.node(row)

    def destroy(self) -> None:
        self._input.destroy()

    def set_output(self, push: Push) -> None:
        def metered(change: Change) -> None:
            begun = self._clock()
            push(change)
            self._meter.push_seconds += self._clock() - begun
            self._meter.changes_pushed += 1

        self._input.set_output(metered)

    def fetch(self, request: Request) -> Stream:
        meter, clock = self._meter, self._clock
        meter.fetches += 1
        begun = clock()
        for node in self._input.fetch(request):
            meter.fetch_seconds += clock() - begun
            if node is not YIELD:
                meter.rows_fetched += 1
            yield node
            begun = clock()
        meter.fetch_seconds += clock() - begun


class Meters:
    """The meters of one pipeline, in the order its operators were built: sources first."""

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        # `wrap` adds one for each operator, while the pipeline is built.
        self.meters: list[Meter] = []
        self._clock = clock

    def wrap(self, operator: Input, label: str) -> Input:
        """Put a meter around an operator."""
        meter = Meter(label)
        self.meters.append(meter)
        return Metered(operator, meter, self._clock)

    def __str__(self) -> str:
        return "\n".join(map(str, self.meters))
