"""The reference page of the rules is current, and every finding's link leads to a section of it."""

from pathlib import Path

from changesource_sdk.checking.expectations import ALL, EXPECTATIONS, PAGE
from changesource_sdk.checking.remedies import REMEDIES
from changesource_sdk.checking.rules_page import page
from protocol.rules import RULES

ROOT = Path(__file__).parents[3]


def test_the_page_is_what_the_rules_make() -> None:
    told = f"run: python -m changesource_sdk.checking.rules_page > {PAGE}"
    assert (ROOT / PAGE).read_text() == page(), told


def test_every_rule_has_its_section() -> None:
    headings = {line.removeprefix("### ") for line in (ROOT / PAGE).read_text().splitlines() if line.startswith("### ")}
    assert headings == set(ALL)


def test_every_rule_has_a_remedy_and_no_remedy_is_left_over() -> None:
    assert set(REMEDIES) == set(ALL)
    assert all(remedy.effect and remedy.fix for remedy in REMEDIES.values())


def test_rules_and_expectations_have_names_of_their_own() -> None:
    assert not RULES.keys() & EXPECTATIONS.keys()
