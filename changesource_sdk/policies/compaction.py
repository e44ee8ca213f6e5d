"""When to compact: after so many bytes or transactions since the newest snapshot. Pure.

A new consumer gets the newest snapshot and then every transaction after it, and the log keeps all of those: the policy
bounds both. It is written as text, `256MB`, `100000tx`, both with a comma between (whichever comes first), or `never`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BYTES = re.compile(r"(\d+)\s*([kmgt]?)b", re.IGNORECASE)
_TRANSACTIONS = re.compile(r"(\d+)\s*tx", re.IGNORECASE)

LEAST_SHARE = 0.1
"""A snapshot is not rewritten for less than this share of its own size: the work stays in proportion."""


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """Compact when either limit is reached; None is no limit."""

    bytes: int | None = None
    transactions: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """The policy that a text describes; ValueError says what is wrong with it."""
        if text.strip().lower() == "never":
            return cls()
        size = transactions = None
        for word in text.split(","):
            if limit := _BYTES.fullmatch(word.strip()):
                size = int(limit[1]) * _UNITS[limit[2].lower()]
            elif limit := _TRANSACTIONS.fullmatch(word.strip()):
                transactions = int(limit[1])
            else:
                raise ValueError("must be a size such as 256MB, a number such as 100000tx, both, or never")
        return cls(size, transactions)

    @property
    def is_never(self) -> bool:
        """Whether nothing is ever due."""
        return self.bytes is None and self.transactions is None

    def is_due(self, transactions: int, size: int, snapshot_size: int) -> bool:
        """Whether a log that grew so much since a snapshot of that size should be compacted."""
        if size < LEAST_SHARE * snapshot_size:
            return False
        by_size = self.bytes is not None and size >= self.bytes
        return by_size or (self.transactions is not None and transactions >= self.transactions)


NEVER = CompactionPolicy()


def problem(text: str) -> str | None:
    """What is wrong with the text of a policy, if anything."""
    try:
        CompactionPolicy.parse(text)
    except ValueError as error:
        return str(error)
    return None
