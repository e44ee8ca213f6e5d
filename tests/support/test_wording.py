"""What the check of the wording complains about, and what it counts."""

from __future__ import annotations

import pytest

from tests.support import wording
from tests.support.wording import changing_attributes, findings


@pytest.mark.parametrize(
    "source",
    [
        '"""Told to whoever asks."""',
        'x = 1\n"""Where it stands."""',
        "x = 1  # read anew",
        "# kept for ever",
        'def f() -> None:\n    """Let go of it."""',
        "found = 1",
        "def f(given: int) -> None: ...",
        "class PartPlace: ...",
        "class LogEar: ...",
        "class A:\n    def f(self) -> None:\n        self._told = 1",
        "for place_of in (): ...",
        "with open('x') as share: ...",
        "import os as naming_the_cause",
        "raise ValueError('the consumer was told twice')",
        "log.info(f'{name} goes on with {watermark}')",
        "port = setting(80, int, 'the port, beside the host')",
    ],
)
def test_listed_words_are_findings(source: str) -> None:
    assert findings(source, "module")


@pytest.mark.parametrize(
    "source",
    [
        '"""The letter stands for a width; a stand-in."""',
        '"""`told` is a field of theirs, ``whoever`` another."""',
        "not_found = in_place = replace = early = shared = lookup = 1",
        "class FileNotFound: ...",
        "print(other.found, 'told')",
        "fix = 'set `told` to true'",
    ],
)
def test_other_words_are_not(source: str) -> None:
    assert findings(source, "module") == []


def test_the_name_of_a_module_is_examined() -> None:
    assert findings("", "part_place")
    assert findings("", "part_store") == []


def test_a_finding_has_the_line_of_the_word_in_a_docstring() -> None:
    assert [each.line for each in findings('"""One.\n\nRead\nanew."""\n', "module")] == [4]


STATE = """
class Counting:
    '''`total` is in rows.'''

    def __init__(self):
        # Rows of this run; the reading thread.
        self.rows = 0
        self.bytes = 0  # set by `add`
        self.total = 0
        self.seen = []
        self.limits = {}
        self.constant = 0

    def add(self):
        self.rows += 1
        self.bytes = self.total = 5
        self.seen.append(1)
        self.limits["a"] = self.constant
        self.late = 1
"""


def test_attributes_that_change_after_init_are_counted_with_those_explained() -> None:
    explained = {each.name: each.explained for each in changing_attributes(STATE)}
    assert explained == {"rows": True, "bytes": True, "total": True, "seen": False, "limits": False, "late": False}


def test_the_product_is_clean() -> None:
    assert wording.check() == []
