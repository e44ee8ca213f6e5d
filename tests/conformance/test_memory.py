"""The memory adapter keeps the adapter contract."""

from changesource_sdk.testing.conformance import conformance
from tests.conformance.memory_harness import MemoryHarness

TestMemory = conformance(MemoryHarness)
