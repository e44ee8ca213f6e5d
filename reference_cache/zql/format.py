"""The shape of a query's result: which levels show one row, and which relationships appear under it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Format:
    """`singular` levels show a row or nothing instead of a list; EXISTS relationships are never listed here."""

    singular: bool = False
    relationships: Mapping[str, Format] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Format:
        """Read `{singular, relationships}`."""
        return cls(value["singular"], {name: cls.from_json(each) for name, each in value["relationships"].items()})

    def to_json(self) -> dict[str, Any]:
        """`{singular, relationships}`."""
        return {
            "singular": self.singular,
            "relationships": {name: each.to_json() for name, each in self.relationships.items()},
        }
