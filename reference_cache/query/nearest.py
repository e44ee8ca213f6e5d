"""Naming what was probably meant when a name is unknown."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """`unknown column 'opne'; did you mean 'open'?`, or the list of what there is."""
    names = list(known)
    close = get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"unknown {what} {name!r}; did you mean {close[0]!r}?"
    return f"unknown {what} {name!r}; known: {', '.join(sorted(names)[:12]) or 'none'}"
