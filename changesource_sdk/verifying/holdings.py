"""What each stage holds: its watermark, and for each table the number of rows and their digest. Pure.

Stages with the same rows have the same digests, so a list of all of them shows where rows first differ. `sides.compare`
shows which rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from changesource_sdk.verifying.sides import Side, digest


@dataclass(frozen=True, slots=True)
class Holding:
    """One stage at one moment; `where` identifies it if there may be several, as with replicas."""

    stage: str
    watermark: str
    tables: dict[str, tuple[int, str]]
    where: str = ""

    def as_json(self) -> dict[str, object]:
        """For machines."""
        tables = {name: {"rows": rows, "digest": text} for name, (rows, text) in self.tables.items()}
        return {"stage": self.stage, "place": self.where or None, "watermark": self.watermark, "tables": tables}


def holding(side: Side, where: str = "") -> Holding:
    """The side without its rows."""
    tables = {name: (len(rows), digest(rows)) for name, rows in sorted(side.tables.items())}
    return Holding(side.name, side.watermark, tables, where)
