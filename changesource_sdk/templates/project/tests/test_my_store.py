"""The adapter keeps every rule that the suite knows: one test per rule."""

from harness import MyStoreHarness

from changesource_sdk.testing.conformance import conformance

TestMyStore = conformance(MyStoreHarness)
