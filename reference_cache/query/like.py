r"""LIKE and ILIKE patterns as matchers over strings.

`%` is any run, `_` one character (a code point), `\x` the character x itself; the whole value must match. Common
shapes become plain string methods; the rest a regular expression that cannot backtrack from one `%` into an earlier
one, so matching stays linear in the value for every pattern a client may send.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

Matcher = Callable[[str], bool]


class LikePatternError(ValueError):
    """A pattern that ends in a lone escape character."""

    code = "bad-like-pattern"


@dataclass(frozen=True, slots=True)
class _Segment:
    """A stretch between two `%`: one entry per character, None standing for `_`."""

    characters: tuple[str | None, ...]

    @property
    def text(self) -> str | None:
        """The stretch as plain text, if it has no `_`."""
        return None if None in self.characters else "".join(c for c in self.characters if c is not None)

    @property
    def regex(self) -> str:
        return "".join("." if c is None else re.escape(c) for c in self.characters)


def like(pattern: str, *, ignore_case: bool = False) -> Matcher:
    """A matcher for the pattern; raises `LikePatternError` if it ends in a lone backslash."""
    segments = _segments(pattern.lower() if ignore_case else pattern)
    match = _matcher(segments)
    if ignore_case:
        return lambda value: match(value.lower())
    return match


def _segments(pattern: str) -> list[_Segment]:
    segments: list[_Segment] = []
    current: list[str | None] = []
    characters = iter(pattern)
    for character in characters:
        if character == "%":
            segments.append(_Segment(tuple(current)))
            current = []
        elif character == "_":
            current.append(None)
        elif character == "\\":
            escaped = next(characters, None)
            if escaped is None:
                raise LikePatternError(f"the LIKE pattern {pattern!r} ends in a lone backslash; write it twice")
            current.append(escaped)
        else:
            current.append(character)
    segments.append(_Segment(tuple(current)))
    return segments


def _matcher(segments: list[_Segment]) -> Matcher:
    texts = [segment.text for segment in segments]
    match texts:
        case [str(whole)]:
            return lambda value: value == whole
        case ["", ""]:
            return lambda value: True
        case [str(prefix), ""]:
            return lambda value: value.startswith(prefix)
        case ["", str(suffix)]:
            return lambda value: value.endswith(suffix)
        case ["", str(part), ""]:
            return lambda value: part in value
        case [str(prefix), str(suffix)]:
            shortest = len(prefix) + len(suffix)
            return lambda value: len(value) >= shortest and value.startswith(prefix) and value.endswith(suffix)
        case _:
            return _regex_matcher(segments)


def _regex_matcher(segments: list[_Segment]) -> Matcher:
    # The leftmost place of each middle segment is always good enough, so an atomic group may forget the others.
    first, *rest = segments
    middle = "".join(f"(?>.*?{segment.regex})" for segment in rest[:-1])
    last = f".*{rest[-1].regex}" if rest else ""
    fullmatch = re.compile(first.regex + middle + last, re.DOTALL).fullmatch
    return lambda value: fullmatch(value) is not None
