"""Printing the findings of a check: the rule, the frame, the fix, and the page that explains it."""

from __future__ import annotations

import json
import sys

from changesource_cli.output import stderr, stdout
from changesource_sdk.checking.verdict import SHOWN_CHARACTERS, CheckVerdict, Finding

MARKS = {"ok": "[green]ok      [/]", "broken": "[bold red]BROKEN  [/]", "not seen": "[yellow]not seen[/]"}


def print_verdict(verdict: CheckVerdict) -> None:
    """Print a line for the case and a few for each finding."""
    stdout.print(f"{MARKS[verdict.outcome]} {verdict.case}: ", end="")
    stdout.print(verdict.message, markup=False)
    for finding in verdict.findings:
        print_finding(finding)


def print_repeated(first: CheckVerdict, others: list[CheckVerdict]) -> None:
    """Print one line for the cases that are broken for the same reason as one that was printed."""
    stdout.print(f"{MARKS['broken']} ", end="")
    names = ", ".join(verdict.case for verdict in others)
    number = f"{len(others)} more case{'s' if len(others) > 1 else ''}"
    stdout.print(f"{number}, for the same reason as {first.case}: {names}", markup=False)


def print_finding(finding: Finding, *, as_json: bool = False, to_stderr: bool = False) -> None:
    """Print a finding as text or as a line of JSON."""
    if as_json:
        stream = sys.stderr if to_stderr else sys.stdout
        stream.write(json.dumps({"broken": finding.as_json()}, ensure_ascii=False) + "\n")
        stream.flush()
        return
    console = stderr if to_stderr else stdout
    times = f" (and {finding.times - 1} more like it)" if finding.times > 1 else ""
    lines = [f"[{finding.rule}] {finding.message}{times}"]
    if finding.frame:
        shown = finding.text[:SHOWN_CHARACTERS] + ("…" if len(finding.text) > SHOWN_CHARACTERS else "")
        lines.append(f"  frame {finding.frame}: {shown}" if shown else f"  at frame {finding.frame}")
    if finding.fix:
        lines.append(f"  fix: {finding.fix}")
    lines.append(f"  see {finding.page}")
    for line in lines:
        console.print(f"    {line}", markup=False)
