r"""Compiles LIKE and ILIKE patterns to functions over strings.

`%` matches any run of characters, `_` one character (a code point), `\x` the character x itself; the whole value must
match. Common shapes become plain string methods. Others are matched segment by segment: the leftmost occurrence of each
segment between two `%` is always sufficient, so no part of the value is searched twice. A regular expression would
backtrack; here the time is linear in the value for every pattern that a client can send.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Matcher = Callable[[str], bool]

MAX_PATTERN = 4096
"""Characters of a pattern. A segment with `_` costs a word of work per character of the value and 30 of the pattern."""

_SMALL = 1 << 16
"""Characters of the value times those of the segment, up to which a backtracking search is fast enough."""


class LikePatternError(ValueError):
    """A pattern that ends in a lone escape character, or is too long."""

    code = "bad-like-pattern"


class _Text:
    """A segment without `_`."""

    __slots__ = ("length", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.length = len(text)

    def is_at(self, value: str, index: int) -> bool:
        """Whether the segment is at this index of the value."""
        return value.startswith(self.text, index)

    def find(self, value: str, start: int) -> int:
        """The first index from `start` on at which the segment is, or -1; linear time."""
        return value.find(self.text, start)


class _Wild:
    """A segment with `_`: one entry per character, None for `_`."""

    __slots__ = ("_any", "_masks", "_runs", "_search", "length")

    def __init__(self, characters: list[str | None]) -> None:
        self.length = len(characters)
        self._runs = _runs(characters)
        self._search = re.compile("".join("." if c is None else re.escape(c) for c in characters), re.DOTALL).search
        self._any = sum(1 << index for index, c in enumerate(characters) if c is None)
        self._masks: dict[str, int] = {}
        for index, character in enumerate(characters):
            if character is not None:
                self._masks[character] = self._masks.get(character, self._any) | 1 << index

    def is_at(self, value: str, index: int) -> bool:
        """Whether the segment is at this index of the value."""
        if index + self.length > len(value):
            return False
        return all(value.startswith(text, index + offset) for offset, text in self._runs)

    def find(self, value: str, start: int) -> int:
        """The first index from `start` on at which the segment is, or -1; linear time."""
        if (len(value) - start) * self.length <= _SMALL:
            match = self._search(value, start)
            return -1 if match is None else match.start()
        # Bit i of `state`: the last i + 1 characters are the first i + 1 of the segment (the shift-and algorithm).
        state, last, masks, any_character = 0, 1 << self.length - 1, self._masks, self._any
        for index in range(start, len(value)):
            state = (state << 1 | 1) & masks.get(value[index], any_character)
            if state & last:
                return index - self.length + 1
        return -1


_Segment = _Text | _Wild


def _runs(characters: list[str | None]) -> list[tuple[int, str]]:
    """The stretches of plain text, each with its offset."""
    runs: list[tuple[int, str]] = []
    begin = 0
    for index, character in enumerate([*characters, None]):
        if character is None:
            if index > begin:
                runs.append((begin, "".join(c for c in characters[begin:index] if c is not None)))
            begin = index + 1
    return runs


def like(pattern: str, *, ignore_case: bool = False) -> Matcher:
    """Returns a function that tests a value.

    Raises `LikePatternError` if the pattern is too long or ends in a lone backslash.
    """
    _check_length(pattern)
    match = _matcher(_segments(pattern.lower() if ignore_case else pattern))
    if ignore_case:
        return lambda value: match(value.lower())
    return match


def check_pattern(pattern: str) -> None:
    """Raise `LikePatternError` for a pattern that `like` refuses."""
    _check_length(pattern)
    _segments(pattern)


def _check_length(pattern: str) -> None:
    if len(pattern) > MAX_PATTERN:
        raise LikePatternError(f"the LIKE pattern has {len(pattern)} characters; at most {MAX_PATTERN} are allowed")


def _segments(pattern: str) -> list[_Segment]:
    segments: list[_Segment] = []
    current: list[str | None] = []
    characters = iter(pattern)
    for character in characters:
        if character == "%":
            segments.append(_segment(current))
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
    segments.append(_segment(current))
    return segments


def _segment(characters: list[str | None]) -> _Segment:
    if None in characters:
        return _Wild(characters)
    return _Text("".join(c for c in characters if c is not None))


def _matcher(segments: list[_Segment]) -> Matcher:
    match [segment.text if isinstance(segment, _Text) else None for segment in segments]:
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
        case [None]:
            only = segments[0]
            return lambda value: len(value) == only.length and only.is_at(value, 0)
        case _:
            return _in_turn(segments)


def _in_turn(segments: list[_Segment]) -> Matcher:
    """Matches two segments or more: the first at the start of the value, the last at its end, the others in between."""
    first, *middle, last = segments
    middle = [segment for segment in middle if segment.length]
    shortest = sum(segment.length for segment in segments)

    def matches(value: str) -> bool:
        end = len(value) - last.length
        if len(value) < shortest or not first.is_at(value, 0) or not last.is_at(value, end):
            return False
        index = first.length
        for segment in middle:
            at = segment.find(value, index)
            if at < 0:
                return False
            index = at + segment.length
        return index <= end

    return matches
