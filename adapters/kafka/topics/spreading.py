"""Work on many partitions: in Spark tasks if this process is a Spark driver, otherwise in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark import SparkContext

Item = TypeVar("Item")
Result = TypeVar("Result")


def spread(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """The result of `work` for each item, in order; work, items and results must be picklable."""
    context = _spark_context() if items else None
    if context is None:
        return [work(item) for item in items]
    results: list[Result] = context.parallelize(items, len(items)).map(work).collect()
    return results


def _spark_context() -> SparkContext | None:
    """The context of this process, if it is a Spark driver."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext

    # There is no public way to get it without starting one.
    return SparkContext._active_spark_context
