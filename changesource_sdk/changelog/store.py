"""A store of the change log: how pipelines and endpoints reach the log and one another, wherever it lives.

A `LogStore` is a description, not a connection: it can be pickled and sent to a Spark task, and each process opens from
it what it needs. Besides the log itself it carries the small things that travel beside it: what endpoints ask of the
pipeline (`Requests`), what its stages report (`Reports`), what consumers acknowledged (`Subscribers`) and the wake-ups
that spare readers busy polling (`Ear`). Its `layout` names the directories for files: the spool, segments being
written.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.log import LogReader, LogWriter, SnapshotRecord
from changesource_sdk.changelog.offers import Offers
from changesource_sdk.changelog.reports import Reports
from changesource_sdk.changelog.spool.parts import PartPlace
from changesource_sdk.changelog.spool.snapshots import Manifest
from changesource_sdk.changelog.subscribers import Subscribers

SAFETY_POLL_S = 1.0
"""Readers look by themselves this often: a lost wake-up costs latency, never a transaction."""


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """A snapshot with a watermark greater than `above` is wanted."""

    above: str
    reason: str


class Requests(Protocol):
    """What endpoints ask of the pipeline. Asking again keeps the higher watermark, so one answer serves all."""

    def ask_snapshot(self, above: str, reason: str) -> None:
        """Ask for a snapshot above `above`; the pipeline answers with a new generation."""

    def pending_snapshot(self) -> SnapshotRequest | None:
        """What is asked for and not yet answered."""

    def withdraw_snapshot(self) -> None:
        """Forget what is asked for."""

    def answer_snapshot(self, newest: str) -> None:
        """Withdraw the request if the newest snapshot satisfies it."""

    def ask_prune(self, below: str) -> None:
        """Ask that transactions up to and including `below` be forgotten (see `retention.prune_point`)."""

    def take_prune(self) -> str | None:
        """The watermark to prune to, once; None if nobody asked."""


class Ear(Protocol):
    """A reader's ear: its file descriptor is readable when the log may have moved. Wake-ups may be lost."""

    def fileno(self) -> int:
        """What to wait on; it stays the same until `close`."""

    def drain(self) -> None:
        """Forget all wake-ups so far; call it before reading the log."""

    def wait(self, timeout: float = SAFETY_POLL_S) -> bool:
        """Block until woken or the time is over; whether a wake-up came."""

    def close(self) -> None:
        """Stop listening."""


class LogStore(Protocol):
    """Where one change log lives. Invariant: pickling it, or opening from it twice, gives access to the same log."""

    @property
    def layout(self) -> StateDirectory:
        """The directories beside the log."""

    @property
    def requests(self) -> Requests:
        """What endpoints ask of the pipeline; shared by the threads of a process, let go by `close`."""

    @property
    def reports(self) -> Reports:
        """How far the stages are; shared by the threads of a process, let go by `close`."""

    @property
    def offers(self) -> Offers:
        """Compacted snapshots that wait for the writer."""

    def claim(self) -> AbstractContextManager[None]:
        """Be the one pipeline of this log while inside; `StateError` if there is another. Fencing keeps the log whole
        without it: this only spares two pipelines from fencing each other off in turn, for ever.
        """

    def compacting(self) -> AbstractContextManager[None]:
        """Be the one that compacts this log while inside; `StateError` if there is another."""

    def open_reader(self) -> LogReader:
        """The reading side; the log need not exist yet."""

    def open_writer(self, now_us: Callable[[], int]) -> LogWriter:
        """Take over the log: older writers are fenced off, a damaged log is set aside, leftovers are swept."""

    def open_subscribers(self) -> Subscribers:
        """The record of consumers: initial syncs issued, acknowledgements received."""

    def open_ear(self) -> Ear:
        """Be woken when the log moves."""

    def holds(self, snapshot: SnapshotRecord) -> bool:
        """Whether all files of a snapshot are there, each of its full size. Blocking."""

    def manifest(self, snapshot: SnapshotRecord) -> Manifest:
        """What a snapshot consists of. Blocking."""

    def place(self, directory: Path) -> PartPlace:
        """Where tasks put the parts of the snapshot that is written into `directory`, a staged folder of the spool."""

    def bring(self, watermark: str, name: str, target: Path) -> None:
        """Copy one file of a snapshot that is not on this host to `target`; `SnapshotGone` if it is nowhere."""

    def fetch(self, snapshot: SnapshotRecord) -> Path:
        """The folder of a snapshot on this host; brought here if it is elsewhere. Blocking."""

    def publish(self, directory: Path) -> None:
        """Copy a finished snapshot, in a folder named by its watermark, to where endpoints fetch it from. Blocking."""

    def set_aside(self) -> str | None:
        """Put a damaged log out of the way; the name it is kept under, None if there is none to keep."""

    def close(self) -> None:
        """Let go of what this process opened through `requests` and `reports`."""
