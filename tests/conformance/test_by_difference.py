"""`ByDifference` keeps the adapter contract, over an upstream that can only list its rows."""

from changesource_sdk.testing.conformance import conformance
from tests.conformance.by_difference_harness import ByDifferenceHarness

TestByDifference = conformance(ByDifferenceHarness)
