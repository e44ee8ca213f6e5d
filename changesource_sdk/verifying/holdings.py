"""What each stage holds: its watermark, and per table how many rows and their digest. Pure.

Stages that hold the same rows have the same digests, whatever they are: so one look at all of them tells where rows
went another way. Which rows, `compare` tells.
"""

from __future__ import annotations

from dataclasses import dataclass

from changesource_sdk.verifying.sides import Side, digest


@dataclass(frozen=True, slots=True)
class Holding:
    """One stage at one moment; `place` says which one where there may be several."""

    stage: str
    watermark: str
    tables: dict[str, tuple[int, str]]
    place: str = ""

    def as_json(self) -> dict[str, object]:
        """For machines."""
        tables = {name: {"rows": rows, "digest": told} for name, (rows, told) in self.tables.items()}
        return {"stage": self.stage, "place": self.place or None, "watermark": self.watermark, "tables": tables}


def holding(side: Side, place: str = "") -> Holding:
    """The side without its rows."""
    tables = {name: (len(rows), digest(rows)) for name, rows in sorted(side.tables.items())}
    return Holding(side.name, side.watermark, tables, place)
