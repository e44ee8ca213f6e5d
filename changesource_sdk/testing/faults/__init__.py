"""Faults for tests: drop, delay, duplicate, reorder, kill, truncate the log, fill the disk; seeded, with receipts."""

from changesource_sdk.testing.faults.link import Link
from changesource_sdk.testing.faults.plan import Fault, FaultNeverFired, Faults, Receipt
from changesource_sdk.testing.faults.state_faults import full_disk, truncated_log

__all__ = ["Fault", "FaultNeverFired", "Faults", "Link", "Receipt", "full_disk", "truncated_log"]
