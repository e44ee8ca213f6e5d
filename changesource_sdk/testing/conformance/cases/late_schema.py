"""Schema changes that are read late: while the pipeline is stopped, while it is behind, from a position between them.

`tables()` says then what comes later. Entries from before a change must be read with the tables of their time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from changesource_sdk.adapter import Adapter, Position, Snapshot, Table, Transaction
from changesource_sdk.adapter_wrapper import AdapterWrapper
from changesource_sdk.positions import to_text
from changesource_sdk.testing.conformance.cases import schema_scripts
from changesource_sdk.testing.conformance.checkpoints import adding
from changesource_sdk.testing.conformance.pipeline_run import Watch
from changesource_sdk.testing.conformance.trial import Trial

ADVICE = (
    "what was written before a schema change must be read with the columns of its time, not with today's: if your log "
    "does not name them, use_tables(tables) gets the tables of the position"
)
STOPPED = f"after schema changes while the pipeline was stopped; {ADVICE}"
BEHIND = f"after schema changes while the adapter was behind; {ADVICE}"
BETWEEN = f"after a restart at a position between schema changes; {ADVICE}"
AT_ONCE = "in a transaction with schema changes and rows; yield them in one Transaction, in their order"
MOST_ROUNDS = 500


def while_stopped(trial: Trial) -> None:
    """Everything that the schema can do happens while the pipeline is stopped."""
    scripts = schema_scripts.suitable(trial)
    schema_scripts.prepare(trial, scripts)
    with trial.watch() as watch:
        with trial.running_into(watch):
            watch.caught_up()
        schema_scripts.write(trial, scripts)
        with trial.running_into(watch), adding(STOPPED):
            _all_arrived(trial, watch)


def while_behind(trial: Trial) -> None:
    """The same while the adapter is in the middle of reading, with the former schema in its memory."""
    scripts = schema_scripts.suitable(trial)
    schema_scripts.prepare(trial, scripts)
    held: list[HeldAdapter] = []

    def make() -> Adapter:
        held.append(HeldAdapter(trial.adapter()))
        return held[-1]

    with trial.running(make) as watch:
        watch.caught_up()
        held[-1].hold()
        trial.commit(trial.insert(900))
        watch.until(held[-1].is_holding.is_set, watch.witness.judge.missing)
        schema_scripts.write(trial, scripts)
        held[-1].release()
        with adding(BEHIND):
            _all_arrived(trial, watch)


def from_between(trial: Trial) -> None:
    """A new adapter continues from positions between schema changes, when all of them were made long ago."""
    scripts = schema_scripts.suitable(trial)
    schema_scripts.prepare(trial, scripts)
    with trial.watch() as watch:
        with trial.running_into(watch):
            watch.caught_up()
        schema_scripts.write(trial, scripts)
        with adding(BETWEEN):
            for _ in range(MOST_ROUNDS):
                if watch.witness.judge.is_caught_up:
                    break
                _read_a_few(trial, watch)
            schema_scripts.schema_is_the_store_s(trial, watch)


def _read_a_few(trial: Trial, watch: Watch) -> None:
    """Run the pipeline until the log has one transaction more, or up to three."""
    judge, few = watch.witness.judge, trial.random.choice((1, 2, 3))
    made: list[FewAdapter] = []

    def make() -> Adapter:
        made.append(FewAdapter(trial.adapter(), few))
        return made[-1]

    def has_read() -> bool:
        return judge.is_caught_up or (bool(made) and made[-1].is_spent and _is_at(watch, made[-1].last))

    with trial.running_into(watch, make):
        watch.until(has_read, judge.missing)
        watch.poll()


def _is_at(watch: Watch, position: Position) -> bool:
    return to_text(watch.witness.position()) == to_text(position)


def in_transactions(trial: Trial) -> None:
    """Schema changes and rows of one transaction arrive together, at once and after a stop."""
    scripts = schema_scripts.suitable(trial)
    schema_scripts.prepare(trial, scripts)
    half = len(scripts) // 2
    with trial.watch() as watch, adding(AT_ONCE):
        with trial.running_into(watch):
            watch.caught_up()
            for script in scripts[:half]:
                schema_scripts.write_at_once(trial, script)
            watch.caught_up()
        for script in scripts[half:]:
            schema_scripts.write_at_once(trial, script)
        with trial.running_into(watch):
            _all_arrived(trial, watch)


def _all_arrived(trial: Trial, watch: Watch) -> None:
    watch.caught_up()
    schema_scripts.schema_is_the_store_s(trial, watch)
    trial.commit(trial.insert(2000))
    watch.caught_up()


class HeldAdapter(AdapterWrapper):
    """An adapter that can be held at its next transaction, which it has read and not yet yielded."""

    def __init__(self, inner: Adapter) -> None:
        self.inner = inner
        self._is_open = threading.Event()
        self._is_open.set()
        # Set in the pipeline's thread while a transaction is held.
        self.is_holding = threading.Event()

    def hold(self) -> None:
        """Hold the next transaction."""
        self._is_open.clear()

    def release(self) -> None:
        """Yield what is held, and all that follows."""
        self._is_open.set()

    def tables(self) -> Sequence[Table]:
        """Those of the inner adapter."""
        return self.inner.tables()

    def snapshot(self) -> Snapshot:
        """The inner adapter's."""
        return self.inner.snapshot()

    def changes(self, after: Position) -> Iterator[Transaction]:
        """The transactions, held on request."""
        for transaction in self.inner.changes(after):
            if not self._is_open.is_set():
                self.is_holding.set()
                self._is_open.wait()
            yield transaction

    def close(self) -> None:
        """Release what is held, and close the inner adapter."""
        self.release()
        super().close()


class FewAdapter(AdapterWrapper):
    """An adapter that gives a few transactions and then nothing, as if the pipeline was stopped there."""

    def __init__(self, inner: Adapter, few: int) -> None:
        self.inner = inner
        # How many transactions are left to give; written by `changes`.
        self._left = few
        # The position of the last one given; written by `changes`.
        self.last: Position = None

    @property
    def is_spent(self) -> bool:
        """Whether it gives no more."""
        return self._left <= 0

    def tables(self) -> Sequence[Table]:
        """Those of the inner adapter."""
        return self.inner.tables()

    def snapshot(self) -> Snapshot:
        """The inner adapter's."""
        return self.inner.snapshot()

    def changes(self, after: Position) -> Iterator[Transaction]:
        """The first transactions after a position that is new to the log."""
        if self.is_spent:
            return
        for transaction in self.inner.changes(after):
            self.last = transaction.position
            if transaction.position != after:
                self._left -= 1
            yield transaction
            if self.is_spent:
                return
