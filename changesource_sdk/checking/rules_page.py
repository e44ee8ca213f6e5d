"""The reference page of the rules, made from the rules themselves: `python -m changesource_sdk.checking.rules_page`.

Every rule of the protocol and every expectation of the checker gets a section under its own anchor, which findings
point to: what it asks for, what happens otherwise, the fix, and for a rule of the protocol a frame that breaks it.
"""

from __future__ import annotations

import json
from importlib.resources import files

from changesource_sdk.checking.expectations import ALL
from changesource_sdk.checking.remedies import REMEDIES
from protocol import values
from protocol.rules import RULES, Rule

SECTIONS = {
    "2": "Connecting",
    "3": "Frames",
    "4": "Transactions",
    "5": "Changes",
    "6": "Tables, columns and indexes",
    "7": "Values",
    "8": "Watermarks",
    "9": "Initial sync",
    "10": "The consumer's own tables",
    "11": "Acknowledgements",
    "12": "Resuming",
    "13": "Resets",
    "16": "The sketch dialect",
}
HEAD = """# The rules

What a stream of `/changes/v0/stream` must be like, and what an endpoint must do. `changesource check` asks for all of
it and names what is broken; `changesource tail --validate` judges a live stream by the rules that single frames can
break; `protocol.rules.check` judges a recorded transcript. The numbers are those that a violation is printed with
(`§8`). What is said to happen is what zero-cache 1.9.0 does. See [check an endpoint](../how-to/check-an-endpoint.md).

This page is made by `python -m changesource_sdk.checking.rules_page`.
"""
LONGEST_EXAMPLE = 240


def page() -> str:
    """The whole page, in Markdown."""
    parts = [HEAD]
    for number, title in SECTIONS.items():
        rules = [rule for rule in ALL.values() if rule.section.partition(".")[0] == number]
        parts += [f"\n## §{number} {title}\n", *map(_section, sorted(rules, key=_section_numbers))]
    return "".join(parts)


def _section_numbers(rule: Rule) -> list[int]:
    return [int(part) for part in rule.section.split(".")]


def _section(rule: Rule) -> str:
    effect, fix = REMEDIES[rule.id]
    lines = [f"\n### {rule.id}\n", f"\n{_sentence(rule.text)} {effect}\n", f"\nFix: {fix}.\n"]
    if rule.id in RULES and (frame := _broken_frame(rule.id)):
        lines.append(f"\nThis breaks it:\n\n```\n{frame}\n```\n")
    return "".join(lines)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _broken_frame(rule: str) -> str:
    """The frame of the golden transcript that breaks a rule; empty if it does not show anything by itself."""
    lines = files("protocol").joinpath("fixtures", "broken", f"{rule}.jsonl").read_bytes().splitlines()
    record = json.loads(lines[-1])
    shown = values.dumps(record["message"]).decode() if "message" in record else str(record.get("text", ""))
    return shown if len(shown) <= LONGEST_EXAMPLE else ""


if __name__ == "__main__":
    print(page(), end="")
