"""Naming what was probably meant when a name is unknown."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from reprlib import Repr

_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 80


def shown(value: object) -> str:
    """A client's value as it may stand in a message: shortened while it is made, since it may be huge."""
    return _SHORT.repr(value)


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """`unknown column 'opne'; did you mean 'open'?`, or the list of what there is."""
    names = list(known)
    close = get_close_matches(name[:200], names, n=1, cutoff=0.6)
    if close:
        return f"unknown {what} {shown(name)}; did you mean {close[0]!r}?"
    return f"unknown {what} {shown(name)}; known: {', '.join(sorted(names)[:12]) or 'none'}"
