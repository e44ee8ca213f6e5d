"""Where a reader of a Delta table stands: what the table's part of a position holds."""

from __future__ import annotations

from dataclasses import dataclass

from adapters.spark_tables.source import Token
from adapters.spark_tables.versions import lost


@dataclass(frozen=True, slots=True)
class DeltaPlace:
    """A token: the table's own id, the version read, the shape that consumers have, and the base that is remembered."""

    id: str
    version: int
    shape: str
    base: int

    @classmethod
    def at(cls, token: Token, where: str) -> DeltaPlace:
        """The place that a token means."""
        match token:
            case {"id": str(number), "version": int(version), "shape": str(shape), "base": int(base)}:
                return cls(number, version, shape, base)
        raise lost("the position was not made by this source", where)

    def token(self) -> Token:
        """The place as the position has it."""
        return {"id": self.id, "version": self.version, "shape": self.shape, "base": self.base}
