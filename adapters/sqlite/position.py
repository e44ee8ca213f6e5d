"""The position of a reader in a captured database."""

from __future__ import annotations

from dataclasses import dataclass

from changesource_sdk import Position, ResyncRequired, position_lost


@dataclass(frozen=True, slots=True)
class SqlitePosition:
    """The capture that a reader follows, the last recorded key it has read, and the schema version it read it under."""

    origin: str
    sequence: int
    version: int

    def to_json(self) -> Position:
        """The position as the log stores it."""
        return {"origin": self.origin, "seq": self.sequence, "schema": self.version}

    @classmethod
    def from_json(cls, position: Position) -> SqlitePosition:
        """Raises `ResyncRequired` for a position of another adapter."""
        match position:
            case {"origin": str(origin), "seq": int(sequence), "schema": int(version)}:
                return cls(origin, sequence, version)
        raise lost("it was not made by this adapter")


def lost(reason: str) -> ResyncRequired:
    """The error that makes the pipeline take a new snapshot."""
    return position_lost(reason, fix="nothing to do: the database is read again; let only one reader follow a database")
