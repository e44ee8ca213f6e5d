"""Naming what was probably meant when a name is unknown."""

from __future__ import annotations

from collections.abc import Iterable
from reprlib import Repr

from service_kit.suggestions import closest

_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 80


def shown(value: object) -> str:
    """A client's value as it may appear in a message: shortened while it is made, since it may be huge."""
    return _SHORT.repr(value)


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """`unknown column 'opne'; did you mean 'open'?`, or the list of what there is."""
    names = list(known)
    close = closest(name, names)
    if close:
        return f"unknown {what} {shown(name)}; did you mean {close!r}?"
    return f"unknown {what} {shown(name)}; known: {', '.join(sorted(names)[:12]) or 'none'}"
