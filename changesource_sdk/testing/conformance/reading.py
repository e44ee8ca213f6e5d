"""Reading an adapter without the pipeline: its snapshot and its changes, as the pipeline would encode them.

`changes()` may block without end, so it is read in a thread; `Follower.until` waits for a condition on what was read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from changesource_sdk.adapter import Adapter, Closing, Position, Transaction, UsingTables
from changesource_sdk.changelog.spool.blocks import BlockFile
from changesource_sdk.errors import ChangesourceError
from changesource_sdk.pipeline.encoding.consumer_schema import ConsumerSchema
from changesource_sdk.pipeline.encoding.transactions import TransactionEncoder
from changesource_sdk.pipeline.snapshot.fold import fold_snapshot
from changesource_sdk.pipeline.snapshot.take import adapter_call
from changesource_sdk.pipeline.tail import POLL_INTERVAL_S
from changesource_sdk.positions import from_text, is_behind, to_text
from changesource_sdk.testing.conformance.case import Broken, worded
from protocol.changes import Change
from protocol.codec import decode_changes
from protocol.fold.rows import FoldedTables

Answer = TypeVar("Answer")
UNSPILLED = 1 << 40


@dataclass(frozen=True, slots=True)
class Read:
    """One transaction of an adapter."""

    position: Position
    changes: list[Change] = field(repr=False)
    watermark: str | None = None
    commit_time_ms: float | None = None


@dataclass(frozen=True, slots=True)
class ReadSnapshot:
    """A snapshot, folded, with the encoder for what follows it."""

    position: Position
    replica: FoldedTables
    encoder: TransactionEncoder


def within(seconds: float, what: str, call: Callable[[], Answer]) -> Answer:
    """The result of a call of the adapter, made in a thread; `Broken` if it fails or takes longer."""
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with adapter_call(what):
                answers.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise Broken(f"{what} did not return within {seconds:g} s")
    if errors:
        raise as_verdict(errors[0])
    return answers[0]


def as_verdict(error: BaseException) -> BaseException:
    """An error of the SDK as `Broken`; any other as it is."""
    if isinstance(error, ChangesourceError):
        return Broken(worded(**error.as_json()))
    return error


def read_snapshot(adapter: Adapter, patience: float) -> ReadSnapshot:
    """All rows of a new snapshot; `Broken` if it fails or takes longer than `patience` seconds."""
    read = within(patience, "snapshot()", lambda: fold_snapshot(adapter, adapter.snapshot()))
    return ReadSnapshot(read.position, read.replica, memory_encoder(read.schema))


def memory_encoder(schema: ConsumerSchema) -> TransactionEncoder:
    """An encoder that keeps transactions of any size in memory."""

    def no_file() -> Path:
        raise AssertionError("nothing is spilled here")

    return TransactionEncoder(schema, no_file, UNSPILLED)


def position_is_json(position: Position) -> None:
    """Positions are stored as JSON and must come back as they were."""
    if from_text(to_text(position)) != position:
        raise Broken(
            f"the position {position!r} is {from_text(to_text(position))!r} when it comes back from the log: make "
            f"positions of JSON values only (lists, not tuples)"
        )


class Follower:
    """Reads an adapter's changes in a thread, for the length of a block.

    `known` are positions read before `after`, which an adapter may yield again.
    """

    def __init__(
        self, adapter: Adapter, after: Position, encoder: TransactionEncoder, known: Iterable[Position] = ()
    ) -> None:
        # The transactions so far, in order, without repetitions. Appended by the thread, under `_changed`.
        self.reads: list[Read] = []
        # The positions of all transactions, repetitions included. Appended by the thread.
        self.positions: list[Position] = []
        # Positions, as text, whose transactions were read before; another one is a repetition. Used by the thread only.
        self._known = {to_text(after), *map(to_text, known)}
        self._adapter = adapter
        # The position to read after; the thread moves it with each transaction.
        self._after = after
        self._encoder = encoder
        # What ended the thread; written by it, under `_changed`.
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Follower:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if isinstance(self._adapter, Closing):
            self._adapter.close()
        self._thread.join(2.0)

    @property
    def error(self) -> BaseException | None:
        """What ended the reading, if something did."""
        return self._error

    def until(self, condition: Callable[[], bool], patience: float) -> bool:
        """Wait until the condition, checked after each transaction, holds; returns whether it does. Raises the error of
        the thread.
        """
        with self._changed:
            self._changed.wait_for(lambda: condition() or self._error is not None, patience)
            if self._error is not None and not condition():
                raise as_verdict(self._error)
            return condition()

    def _run(self) -> None:
        try:
            with adapter_call("changes()"):
                while not self._ended.is_set():
                    if not self._read_available():
                        self._ended.wait(getattr(self._adapter, "poll_interval", POLL_INTERVAL_S))
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _read_available(self) -> bool:
        moved = False
        if isinstance(self._adapter, UsingTables):
            self._adapter.use_tables(self._encoder.schema.declared())
        for transaction in self._adapter.changes(self._after):
            if self._ended.is_set():
                return True
            moved = self._take(transaction) or moved
        return moved

    def _take(self, transaction: Transaction) -> bool:
        text = to_text(transaction.position)
        self.positions.append(transaction.position)
        if text in self._known or is_behind(transaction.position, self._after):
            for _ in transaction.changes:
                pass
            return False
        encoded = self._encoder.encode(transaction)
        assert not isinstance(encoded.data, BlockFile)
        with self._changed:
            self.reads.append(
                Read(
                    transaction.position,
                    decode_changes(encoded.data),
                    transaction.watermark,
                    transaction.commit_time_ms,
                )
            )
            self._known.add(text)
            self._after = transaction.position
            self._changed.notify_all()
        return True
