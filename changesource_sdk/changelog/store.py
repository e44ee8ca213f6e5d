"""One change log and everything that belongs to it: the log, the files of snapshots, coordination.

A `LogStore` is a description, not a connection: it can be pickled and sent to a Spark task, and each process opens from
it what it needs. The class is the same for every backend; a backend supplies a `Log`, a `Coordination` and perhaps a
`Spool`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, closing

from changesource_sdk.changelog.coordination.contract import Coordination
from changesource_sdk.changelog.coordination.handoff import SnapshotHandoff
from changesource_sdk.changelog.coordination.notes import FileNotes
from changesource_sdk.changelog.coordination.reports import Reports
from changesource_sdk.changelog.coordination.requests import Requests
from changesource_sdk.changelog.coordination.seeds import Seeds
from changesource_sdk.changelog.coordination.wakeup import WakeupListener
from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.log import Log
from changesource_sdk.changelog.source_writer import SourceWriter
from changesource_sdk.changelog.spool.files import SnapshotFiles
from changesource_sdk.changelog.writer import LogWriter
from changesource_sdk.errors import CorruptLog

_log = logging.getLogger("changesource.log")


class LogStore:
    """One change log. Invariant: pickling it, or opening from it twice, gives access to the same log.

    `open_log` and `open_coordination` make objects that connect when they are first used and that their caller closes;
    both are picklable. `is_local` says that all processes of the log are on this host: then a small read is so quick
    that an event loop may wait for it, and reports in files reach all of them.
    """

    def __init__(
        self,
        files: SnapshotFiles,
        open_log: Callable[[], Log],
        open_coordination: Callable[[], Coordination],
        is_local: bool = False,
    ) -> None:
        self.files = files
        self.open_log = open_log
        self.open_coordination = open_coordination
        self.is_local = is_local
        # Shared by the threads of this process, and closed by `close`.
        self._coordination = open_coordination()
        # Where hosts share a directory, they see the note there; where they share a URI, in the log.
        handoff_notes = FileNotes(self.layout) if files.spool is None else self._coordination
        self.requests = Requests(self._coordination)
        self.seeds = Seeds(self._coordination)
        self.reports = Reports(self.layout.stages, None if is_local else self._coordination)
        self.handoff = SnapshotHandoff(self.layout, files, handoff_notes)

    def __reduce__(self) -> tuple[object, ...]:
        return LogStore, (self.files, self.open_log, self.open_coordination, self.is_local)

    @property
    def layout(self) -> StateDirectory:
        """The paths of the state directory."""
        return self.files.layout

    def open_writer(self, now_us: Callable[[], int]) -> LogWriter:
        """Take over the log and return its writer; `now_us` is the clock, in epoch microseconds.

        Older writers are fenced off, a damaged log is set aside, and files that a killed writer left are removed.
        """
        self.layout.create()
        try:
            return LogWriter(self.open_log(), self.files, now_us)
        except CorruptLog as error:
            _log.error("%s; set aside as %s, a new snapshot is taken", error, self.set_aside())
            return LogWriter(self.open_log(), self.files, now_us)

    def open_source_writer(self, source: str, epoch: int, now_us: Callable[[], int]) -> SourceWriter:
        """Become the newest writer of one source, under the pipeline whose `LogWriter` has this epoch."""
        self.layout.create()
        return SourceWriter(self.open_log(), source, epoch, now_us)

    def set_aside(self) -> str | None:
        """Rename a damaged log and return its new name; None if there is no log."""
        with closing(self.open_log()) as log:
            return log.set_aside()

    def claim(self) -> AbstractContextManager[None]:
        """Be the only pipeline of this log inside the block; raises `StateError` if there is another.

        The log stays correct without this lock, because of fencing. The lock prevents that two pipelines fence each
        other off in turn, without end.
        """
        return self._coordination.lock("pipeline")

    def compacting(self) -> AbstractContextManager[None]:
        """Be the only process that compacts this log inside the block; raises `StateError` if there is another."""
        return self._coordination.lock("compaction")

    def seeding(self) -> AbstractContextManager[None]:
        """Be the only process that makes a seed of this log inside the block; raises `StateError` otherwise."""
        return self._coordination.lock("seed")

    def listen(self) -> WakeupListener:
        """Return a listener that is woken when the log has something new to read; the caller closes it."""
        return self._coordination.listen()

    def close(self) -> None:
        """Release what this process opened through `requests`, `reports` and `handoff`."""
        self._coordination.close()
