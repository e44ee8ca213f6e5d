"""Assembles pokes: `pokeStart`, `pokePart`… and `pokeEnd` become one `Poke`. Pure.

A poke takes effect when its end arrives; one that is incomplete when the connection breaks is dropped. The rules are
those of the official client: a poke starts from the client's cookie, does not interleave with another, and its cookie
does not go back. A poke that breaks a rule raises `PokeError`, which ends the connection.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.sync.downstream import PokeEnd, PokePart, PokeStart


class PokeError(ValueError):
    """A poke that cannot be applied."""

    code = "bad-poke"


class WrongBase(PokeError):
    """A poke that starts from another cookie than the client's; a new connection may work."""


@dataclass(frozen=True, slots=True)
class Poke:
    """A complete poke, from cookie `base` to `cookie`. Apply its parts in order, all or none."""

    base: str | None
    cookie: str
    parts: tuple[PokePart, ...] = ()


class PokeAssembly:
    """The incomplete poke of one connection."""

    def __init__(self) -> None:
        # Set between `pokeStart` and `pokeEnd`.
        self._start: PokeStart | None = None
        # The parts since `_start`.
        self._parts: list[PokePart] = []

    def take(self, message: PokeStart | PokePart | PokeEnd) -> Poke | None:
        """Add a message; returns the poke when it is complete and not cancelled. Raises `PokeError`."""
        if isinstance(message, PokeStart):
            if self._start is not None:
                raise PokeError(f"poke {message.poke_id} begins inside poke {self._start.poke_id}")
            self._start, self._parts = message, []
            return None
        if self._start is None or message.poke_id != self._start.poke_id:
            raise PokeError(f"{message.tag} of poke {message.poke_id}, which is not under way")
        if isinstance(message, PokePart):
            self._parts.append(message)
            return None
        start, self._start = self._start, None
        return None if message.cancel else Poke(start.base_cookie, message.cookie, tuple(self._parts))


def check_follows(poke: Poke, cookie: str | None) -> None:
    """Raise `PokeError` unless the poke can be applied at this cookie."""
    if poke.base != cookie:
        raise WrongBase(f"the poke starts from cookie {poke.base!r}, the client is at {cookie!r}")
    if poke.base is not None and poke.cookie < poke.base:
        raise PokeError(f"the poke goes back from cookie {poke.base!r} to {poke.cookie!r}")
