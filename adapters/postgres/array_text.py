"""The text form of Postgres arrays: `{1,NULL,"a,b"}`, of any depth, with or without bounds.

The grammar is the same for all element types except `box`, which is not synced: braces, commas, elements in double
quotes where necessary, a backslash before a quote or a backslash, and an unquoted NULL.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_PLAIN = re.compile(r'\{([^{}"\\]*)\}')
_TOKEN = re.compile(r'[{},]|"((?:[^"\\]|\\.)*)"|([^{},"]+)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


class ArrayReader:
    """Reads arrays; `element` decodes an element. A quoted NULL is text, an unquoted one is None."""

    def __init__(self, element: Callable[[str], object]) -> None:
        self._element = element

    def read(self, text: str) -> list[object]:
        """The elements, as lists of lists if there are more dimensions. Lower bounds (`[2:3]=`) are ignored."""
        if text.startswith("["):
            text = text[text.index("=") + 1 :]
        plain = _PLAIN.fullmatch(text)
        if plain is None:
            return self._nested(text)
        body = plain.group(1)
        return [self._unquoted(part) for part in body.split(",")] if body else []

    def _unquoted(self, text: str) -> object:
        return None if text.upper() == "NULL" else self._element(text)

    def _nested(self, text: str) -> list[object]:
        outermost: list[object] = []
        lists = [outermost]
        for part in _TOKEN.finditer(text):
            token, quoted, bare = part.group(0), part.group(1), part.group(2)
            if token == "{":
                inner: list[object] = []
                lists[-1].append(inner)
                lists.append(inner)
            elif token == "}":
                lists.pop()
            elif quoted is not None:
                lists[-1].append(self._element(_ESCAPED.sub(r"\1", quoted)))
            elif bare is not None:
                lists[-1].append(self._unquoted(bare))
        (array,) = outermost
        assert isinstance(array, list)
        return array
