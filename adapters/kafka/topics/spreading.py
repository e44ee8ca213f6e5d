"""Work on many partitions: by Spark tasks where this process is a Spark driver, and here where it is not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark import SparkContext

Item = TypeVar("Item")
Result = TypeVar("Result")


def spread(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """What `work` gives for each item, in their order; work and items must be picklable."""
    context = _spark_context() if items else None
    if context is None:
        return [work(item) for item in items]
    found: list[Result] = context.parallelize(items, len(items)).map(work).collect()
    return found


def _spark_context() -> SparkContext | None:
    """The driver's own, if this process is a Spark driver."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext

    # There is no public way to ask without starting one.
    return SparkContext._active_spark_context
