"""Inputs made from valid ones: bytes flipped, cut and repeated, JSON values exchanged, nested and blown up. Seeded.

Contract: the same seed and examples give the same inputs, so that a failure is repeated from what it prints.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

LONG = 5_000
DEEP = 400
ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2**53,
    2**63,
    -(2**64),
    1e308,
    1.5,
    "",
    "\u0000",
    "\ud800",
    "__proto__",
    "../../",
    "%00%2e%2e",
    "zzzz",
    [],
    {},
    [[]],
)


class Mutator:
    """Endless inputs around some examples."""

    def __init__(self, examples: Sequence[str], seed: int) -> None:
        self._examples = examples
        self._random = random.Random(seed)

    def inputs(self) -> Iterator[str]:
        """One input after the other."""
        while True:
            example = self._random.choice(self._examples)
            change = self._random.choice((self._change_json, self._change_json, self._change_text, self._change_text))
            yield change(example)

    def _change_text(self, text: str) -> str:
        for _ in range(self._random.randint(1, 4)):
            at = self._random.randint(0, len(text))
            text = self._random.choice(self._edits())(text, at)
        return text[:200_000]

    def _edits(self) -> tuple[Callable[[str, int], str], ...]:
        return (
            lambda text, at: (
                text[:at] + chr(self._random.choice((0, 10, 34, 37, 47, 92, 123, 255, 0x1F600))) + text[at:]
            ),
            lambda text, at: text[:at],
            lambda text, at: text[at:],
            lambda text, at: text[:at] + text[at : at + 20] * self._random.randint(2, 30) + text[at:],
            lambda text, at: text[:at] + self._random.choice(self._examples) + text[at:],
        )

    def _change_json(self, text: str) -> str:
        try:
            value = json.loads(text)
        except ValueError:
            return self._change_text(text)
        for _ in range(self._random.randint(1, 3)):
            value = self._changed(value)
        try:
            return json.dumps(value)
        except RecursionError:  # nested twice, deeper than Python's encoder goes; a decoder may be asked for it
            return text.join(("[" * 2 * DEEP, "]" * 2 * DEEP))

    def _changed(self, value: Any) -> Any:
        """The value with something inside exchanged."""
        if isinstance(value, list) and value and self._random.random() < 0.8:
            at = self._random.randrange(len(value))
            if self._random.random() < 0.1:
                return value[:at] + value[at + 1 :]
            return [*value[:at], self._changed(value[at]), *value[at + 1 :]]
        if isinstance(value, dict) and value and self._random.random() < 0.8:
            key = self._random.choice(list(value))
            if self._random.random() < 0.1:
                return {name: each for name, each in value.items() if name != key}
            return value | {key: self._changed(value[key])}
        return self._random.choice(
            (
                lambda: self._random.choice(ODD_VALUES),
                lambda: "x" * self._random.randint(1, LONG),
                lambda: self._nested(value),
                lambda: [value] * self._random.randint(1, 50),
            )
        )()

    def _nested(self, value: Any) -> Any:
        for _ in range(self._random.randint(1, DEEP)):
            value = [value]
        return value
