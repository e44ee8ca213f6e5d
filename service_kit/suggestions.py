"""Naming what was probably meant when a name is unknown."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

MOST_COMPARED = 200
"""Characters of a name that are compared: comparing takes quadratic time, and a client's name may be huge."""


def closest(word: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """The known word that is most like this one; None if none is at least so much like it (0 to 1)."""
    close = get_close_matches(word[:MOST_COMPARED], list(known), n=1, cutoff=likeness)
    return close[0] if close else None


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint that names the nearest known word, else all of them."""
    words = list(known)
    close = closest(word, words, 0.5)
    return f"did you mean {close!r}?" if close else f"known: {', '.join(sorted(words))}"
