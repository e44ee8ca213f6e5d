"""The errors of the SDK, each with a stable code, a place and a fix (`service_kit.errors`).

Everything the SDK raises on purpose is a `ChangesourceError`. The command line prints `error[code]: message
(where)` and `fix: …` and exits with the class's `exit_code`; the pipeline writes the same fields to its stage file.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from service_kit.errors import CodedError


class RefusedRow(NamedTuple):
    """The row, or at least the transaction, that an error is about, so that `changesource skip` can name it.

    `position` is the text of the transaction's position, "" for a snapshot; `table` is empty if it is about no single
    row. `key` identifies the row, `row` shows it.
    """

    position: str
    table: str = ""
    key: str = ""
    row: str = ""


class ChangesourceError(CodedError):
    """Base of the SDK's errors."""

    exit_code: ClassVar[int] = 1
    # Set by the pipeline when a transaction or a row of the upstream is refused.
    refused: RefusedRow | None = None

    def as_json(self) -> dict[str, str]:
        """The fields of the error, and which row it is about."""
        named = self.refused._asdict() if self.refused is not None else {}
        return super().as_json() | {name: value for name, value in named.items() if value}


class ConfigurationError(ChangesourceError):
    """A setting that cannot be used: an unknown adapter, key or value."""

    exit_code = 2


class AdapterError(ChangesourceError):
    """The upstream or its adapter refused or failed; the log is unchanged."""

    exit_code = 3


class InvalidSchema(AdapterError):
    """A declared table, column or index that no consumer can hold."""


class InvalidChange(AdapterError):
    """A change that no consumer can apply; refused before it reaches the log. `column` has the value at fault."""

    def __init__(self, code: str, message: str, where: str = "", fix: str = "", column: str = "") -> None:
        super().__init__(code, message, where, fix)
        self.column = column


class ResyncRequired(AdapterError):
    """Changes cannot be continued: the adapter's position is lost, or a change cannot be expressed in the stream.

    An adapter raises it from `changes()`; the pipeline then takes a new snapshot by itself and consumers are reset.
    """


def position_lost(
    reason: str, where: str = "", fix: str = "nothing to do: the upstream is read again from the start"
) -> ResyncRequired:
    """The error for a position that cannot be resumed."""
    return ResyncRequired("position-lost", f"changes cannot be continued from the last position: {reason}", where, fix)


class StateError(ChangesourceError):
    """The state directory, its log or its spool cannot be used as it is."""

    exit_code = 4


class StaleWriter(StateError):
    """Another writer opened the log later; this one must stop and has written nothing."""


class CorruptLog(StateError):
    """The log file cannot be read; it is renamed and a new generation begins."""


class DiskFull(StateError):
    """No room to append. Nothing was partly written, and the append can be retried."""


class ReadOnlyState(StateError):
    """The state directory cannot be written by this user."""


class SnapshotGone(StateError):
    """A snapshot was replaced or damaged while it was read; open the newest one."""


class EndpointError(ChangesourceError):
    """The endpoint cannot listen or serve."""

    exit_code = 5
