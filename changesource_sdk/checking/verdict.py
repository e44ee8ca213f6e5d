"""The result of a check: per case an outcome, and for each broken rule the frame, the reason, the fix and the docs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from changesource_sdk.checking.expectations import doc
from changesource_sdk.checking.remedies import REMEDIES

Outcome = Literal["ok", "broken", "not seen"]
SHOWN_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule. `frame` numbers the frames of the whole check, from 1; 0 if no single frame is at fault.

    Rules of the protocol have a fix and a page; `own_fix` and `own_page` are for others.
    """

    rule: str
    message: str
    frame: int = 0
    text: str = ""
    times: int = 1
    own_fix: str = ""
    own_page: str = ""

    @property
    def fix(self) -> str:
        """What to do; empty if the message contains it."""
        return self.own_fix or (REMEDIES[self.rule].fix if self.rule in REMEDIES else "")

    @property
    def page(self) -> str:
        """Where the docs explain it."""
        return self.own_page or doc(self.rule)

    def as_json(self) -> dict[str, object]:
        """As in `--json` output."""
        return {
            "rule": self.rule,
            "message": self.message,
            "frame": self.frame or None,
            "text": self.text[:SHOWN_CHARACTERS] or None,
            "times": self.times,
            "fix": self.fix or None,
            "doc": self.page,
        }


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    """A case's answer. Invariant: `findings` is empty unless the outcome is `broken`; `message` is never empty."""

    case: str
    outcome: Outcome
    message: str
    findings: tuple[Finding, ...] = ()

    def as_json(self) -> dict[str, object]:
        """As in `--json` output."""
        findings = [finding.as_json() for finding in self.findings]
        return {"case": self.case, "outcome": self.outcome, "message": self.message, "findings": findings}
