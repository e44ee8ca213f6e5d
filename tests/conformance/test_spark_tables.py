"""The Spark tables adapter keeps the adapter contract, with a Delta table and its change feed."""

from changesource_sdk.testing.conformance import conformance
from tests.conformance.spark_tables_harness import DeltaHarness

TestDelta = conformance(DeltaHarness)
