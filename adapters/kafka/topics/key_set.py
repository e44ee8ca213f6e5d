"""Many keys in little memory: sets of digests that can be sent between processes. Pure.

`KeySet` has 16 bytes per key, since a collision would lose a row. `KeyDigests` has 8 bytes per key: it only finds
candidates, whose keys are then compared.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import merge
from itertools import groupby

DIGEST_BYTES = 16
CHUNK = 250_000
"""Digests that are collected before they are sorted; in a set they take ten times as much memory as in an array."""


@dataclass(frozen=True, slots=True)
class KeySet:
    """Keys that can be looked up."""

    digests: frozenset[bytes] = frozenset()

    @classmethod
    def of(cls, keys: Iterable[bytes]) -> KeySet:
        """The set of these keys."""
        return cls(frozenset(map(_digest, keys)))

    def __contains__(self, key: bytes) -> bool:
        return _digest(key) in self.digests

    def __len__(self) -> int:
        return len(self.digests)


@dataclass(slots=True)
class KeyDigests:
    """Digests of the keys of one partition, each once, sorted."""

    _sorted: list[array[int]] = field(default_factory=list)  # chunks of CHUNK digests each
    _new: set[int] = field(default_factory=set)  # since the last chunk

    def add(self, key: bytes) -> None:
        """One more key, known or not."""
        self._new.add(_number(key))
        if len(self._new) >= CHUNK:
            self._sorted.append(array("Q", sorted(self._new)))
            self._new = set()

    def packed(self) -> array[int]:
        """All of them."""
        return array("Q", (number for number, _ in groupby(merge(*self._sorted, sorted(self._new)))))


def shared(partitions: Iterable[array[int]]) -> array[int]:
    """The digests that more than one of the partitions has."""
    groups = groupby(merge(*partitions))
    return array("Q", (number for number, group in groups if _has_two(group)))


def among(digests: Iterable[int]) -> _Among:
    """A test for keys whose digest is one of these."""
    return _Among(frozenset(digests))


@dataclass(frozen=True, slots=True)
class _Among:
    numbers: frozenset[int]

    def __call__(self, key: bytes) -> bool:
        return _number(key) in self.numbers


def _has_two(group: Iterator[int]) -> bool:
    next(group)
    return next(group, None) is not None


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=DIGEST_BYTES).digest()


def _number(key: bytes) -> int:
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big")
