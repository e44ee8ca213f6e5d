"""What is done with a row that no consumer can hold: the setting `on-bad-value`."""

from __future__ import annotations

from typing import Literal, get_args

BadValuePolicy = Literal["stop", "dead-letter", "null"]
POLICIES: tuple[BadValuePolicy, ...] = get_args(BadValuePolicy)


def policy_of(configured: object, adapter: object) -> BadValuePolicy:
    """The policy that is configured, else the one that the adapter's attribute `on_bad_value` names, else `stop`."""
    wanted = (configured, getattr(adapter, "on_bad_value", None))
    return next((policy for value in wanted for policy in POLICIES if policy == value), "stop")
