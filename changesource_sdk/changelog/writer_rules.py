"""What writers decide alike, whatever store they write to: fencing, the next generation, replays, sweeping."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from changesource_sdk import positions
from changesource_sdk.changelog.log import LogState
from changesource_sdk.changelog.spool import snapshots
from changesource_sdk.errors import InvalidChange, StaleWriter
from changesource_sdk.positions import Position
from protocol import watermark as watermarks
from protocol.watermark import EMPTY

_PARTIAL = ".partial"


def fenced(mine: int, newest: int, where: str) -> StaleWriter:
    """The error of a writer that was replaced."""
    return StaleWriter(
        "writer-fenced",
        f"this writer has epoch {mine}, but a writer with epoch {newest} took over",
        where=where,
        fix="run one pipeline per log; this one stops",
    )


def next_generation(highest: str, above: str, proposed: str | None, now_us: int) -> str:
    """A watermark above both; `proposed` if that is, else from the clock, so that a lost log comes back higher.

    Its major number is a new one: those of the former generation may have been issued to consumers (`next_version`).
    """
    next_major = watermarks.to_int(max(highest, above))[0] + 1
    if proposed is None:
        return watermarks.from_int(max(next_major, now_us))
    is_above = watermarks.to_int(watermarks.validate(proposed))[0] >= next_major
    return proposed if is_above else watermarks.from_int(next_major)


def require_ahead(watermark: str, head: str) -> None:
    """A generation must start above everything in the log."""
    if watermark <= head:
        raise InvalidChange(
            "snapshot-not-ahead",
            f"a snapshot at {watermark} cannot follow a log whose head is {head}",
            fix="take the watermark from next_generation()",
        )


def replayed(state: LogState, position: Position) -> str | None:
    """The watermark of a transaction that is no longer stored but was: the oldest; None if it is a new one."""
    known = position == state.position or positions.is_behind(position, state.position)
    return state.oldest if state.generation > 0 and known else None


def highest_spooled(spool: Path) -> str:
    """The highest watermark that the spool names, which counts as used even if the log that named it is lost."""
    return max((entry.name for entry in spool.iterdir() if watermarks.is_valid(entry.name)), default=EMPTY)


def follows(watermark: str, base: str, known: Sequence[str], head: str) -> bool:
    """Whether a snapshot made from `base` and the log up to `watermark` belongs to a generation with these others."""
    return base in known and max(known) < watermark <= head


def sweep_spool(spool: Path, named: Sequence[str]) -> None:
    """Remove snapshots that the log does not name, of a former generation or left by a kill, and of those it names,
    oldest first, all but the newest; each once nobody reads it. Nothing else is ours.
    """
    for folder in spool.iterdir():
        if folder.name not in named[-1:] and watermarks.is_valid(folder.name.removesuffix(_PARTIAL)):
            snapshots.discard(folder)
