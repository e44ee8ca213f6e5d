"""A log store that shows another's log through a window and writes only to a folder of its own."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from changesource_sdk.changelog.files.layout import StateDirectory
from changesource_sdk.changelog.sqlite.coordination import SqliteCoordination
from changesource_sdk.changelog.store import LogStore
from changesource_sdk.replaying.window import ReplayWindow, WindowedLog


class ReplayStore(LogStore):
    """A `LogStore` for endpoints only: what consumers acknowledge and ask for never reaches the log that is replayed.

    Snapshots are read where that log has them.
    """

    def __init__(self, replayed: LogStore, window: ReplayWindow, folder: Path) -> None:
        # Set first: what the base class makes of the layout belongs in the folder.
        self._own_layout = StateDirectory(folder)
        super().__init__(
            replayed.files,
            open_log=lambda: WindowedLog(replayed.open_log(), window),
            open_coordination=partial(SqliteCoordination, self._own_layout),
            is_local=replayed.is_local,
        )

    @property
    def layout(self) -> StateDirectory:
        """The replay's own folder."""
        return self._own_layout
