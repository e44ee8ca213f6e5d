"""What a case of the suite is, and its verdict. Cases are data: to add one, add an entry to `suite.CASES`.

A case runs on a `Trial` (a new store and all that is needed to watch its adapter). It returns if the adapter keeps the
rule, or raises `Broken` with a message for the author of the adapter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from changesource_sdk.testing.conformance.trial import Trial

PAGE = "docs/how-to/test-an-adapter.md"

Outcome = Literal["kept", "broken", "not applicable"]


class Broken(Exception):
    """The adapter breaks a rule; the message says how and where, and how to fix it."""


class NotApplicable(Exception):
    """The rule does not apply to this adapter; the message says why."""


def worded(code: str, message: str, where: str, fix: str, **_which_row: str) -> str:
    """The message of a verdict for an error of the SDK; `where` names the row."""
    location = f" ({where})" if where else ""
    return f"[{code}] {message}{location}; fix: {fix}"


@dataclass(frozen=True, slots=True)
class Case:
    """One case. `rule` is what an adapter that passes has proved; `needs` are capabilities (see `harness`)."""

    name: str
    rule: str
    run: Callable[[Trial], None] = field(repr=False)
    needs: tuple[str, ...] = ()

    @property
    def doc(self) -> str:
        """Where the case is explained."""
        return f"{PAGE}#{self.name}"


def needing(capability: str, *cases: Case) -> tuple[Case, ...]:
    """These cases, for stores that have one more capability."""
    return tuple(replace(case, needs=(*case.needs, capability)) for case in cases)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one case. `message` is empty exactly if the rule was kept."""

    case: str
    rule: str
    outcome: Outcome
    message: str
    doc: str
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong: kept, or not applicable."""
        return self.outcome != "broken"

    def __str__(self) -> str:
        message = f": {self.message}" if self.message else ""
        return f"{self.case}: {self.outcome}{message}" + ("" if self.ok else f"\nrule: {self.rule}\nsee {self.doc}")

    def as_json(self) -> dict[str, object]:
        """The fields, for `--json`."""
        return {
            "case": self.case,
            "rule": self.rule,
            "outcome": self.outcome,
            "ok": self.ok,
            "message": self.message,
            "doc": self.doc,
            "seconds": round(self.seconds, 3),
        }
