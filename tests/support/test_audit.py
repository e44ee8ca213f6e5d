"""What the audit concludes: an advisory fails it, and silence is never taken for a clean bill."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.audit import verdict

CLEAN = {"name": "a", "version": "1", "vulns": []}
SKIPPED = {"name": "b", "skip_reason": "not found"}
VULNERABLE = {"name": "c", "version": "2", "vulns": [{"id": "GHSA-1"}, {"id": "CVE-2"}]}


@pytest.mark.parametrize(
    ("packages", "code", "said"),
    [
        ([CLEAN, CLEAN], 0, "no known vulnerabilities in 2 pinned packages"),
        ([CLEAN, SKIPPED], 0, "1 could not be looked up"),
        ([SKIPPED, SKIPPED], 0, "NOT AUDITED"),
        ([], 0, "NOT AUDITED"),
        ([CLEAN, SKIPPED, VULNERABLE], 1, "c 2: GHSA-1, CVE-2"),
    ],
)
def test_the_verdict_follows_what_was_learnt(packages: list[dict[str, Any]], code: int, said: str) -> None:
    found, sentence = verdict(packages)
    assert found == code
    assert said in sentence
