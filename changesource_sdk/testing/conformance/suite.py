"""The suite: every case, and how to run them on an adapter.

To add a case, add an entry here and a section on the page that `case.PAGE` names.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from changesource_sdk.errors import ChangesourceError
from changesource_sdk.testing.conformance.case import Broken, Case, NotApplicable, Outcome, Verdict, needing
from changesource_sdk.testing.conformance.cases import (
    declaring,
    following,
    late_schema,
    recovering,
    resuming,
    schema_changes,
    seam,
    serving,
    values,
)
from changesource_sdk.testing.conformance.harness import Harness, lacking
from changesource_sdk.testing.conformance.reading import as_verdict
from changesource_sdk.testing.conformance.trial import Trial

SEED = 20260102

MakeHarness = Callable[[], Harness]

CASES: tuple[Case, ...] = (
    Case("tables", "tables() suits a consumer, has keys, and says the same twice", declaring.tables_are_sound),
    Case("picklable", "the adapter can be sent to another process and works there", declaring.travels),
    Case("partitions", "a partition can be pickled and read again", declaring.partitions_read_again),
    Case("stops", "a pipeline can be stopped: changes() does not block indefinitely", declaring.can_be_stopped),
    Case("serving", "a cache gets all of it, and every frame is legal", serving.to_a_cache),
    *needing(
        "writes",
        Case("empty-store", "an empty store can be followed from its first row", following.from_nothing),
        Case("values-in-snapshot", "values and nulls arrive through a snapshot", values.in_snapshots),
        Case("values-in-changes", "values and nulls arrive through changes", values.in_changes),
        Case("bad-integers", "an integer beyond 64 bits is refused by name, never silently", values.bad_integers),
        Case("bad-texts", "a text that is no Unicode is refused by name, never silently", values.bad_texts),
        Case("bad-numbers", "NaN is refused by name, never silently", values.bad_numbers),
        Case("seam", "what is written during a snapshot is seen exactly once", seam.at_every_step),
        Case("seam-under-load", "the same while another thread writes without pause", seam.under_load),
        Case("order", "transactions come in the order of their commits", following.in_order),
        Case("prompt", "a transaction comes without waiting for the next", following.one_at_a_time),
        Case("positions", "positions are JSON, unique, and rise if they are integers", resuming.positions_are_sound),
        Case("commit-times", "commit times are in milliseconds", resuming.commit_times_are_milliseconds),
        Case("resume", "a new adapter continues right after any position", resuming.from_every_position),
        Case("read-again", "what was not acknowledged can be read again", resuming.reading_again),
        Case("restart", "after a stop it continues where it was", resuming.after_a_stop),
        Case("duplicates", "what comes twice, late or in another order is stored once", resuming.repeated),
        Case("dropped-connection", "a dropped connection costs a retry, nothing else", resuming.interrupted),
        Case("lost-log", "after the log is lost, the store is read again from the start", recovering.lost_log),
    ),
    *needing(
        "updates",
        Case("partial-update", "an update of one column keeps the others", values.partly_updated),
        Case("rewritten-rows", "a row written many times ends in its last version", following.rewritten_rows),
    ),
    *needing("deletes", Case("deletes", "deleted rows are gone", following.deleted_rows)),
    *needing("key changes", Case("key-changes", "a row whose key changes moves", following.changed_keys)),
    *needing(
        "transactions",
        Case("atomic", "the changes of a transaction arrive together", following.whole_transactions),
        Case("empty-transactions", "what leaves nothing behind does no harm", following.empty_transactions),
        Case("huge-transaction", "a transaction of thousands of rows arrives as one", following.huge_transaction),
    ),
    *needing(
        "durable",
        Case("killed", "a pipeline that is killed loses and doubles nothing", resuming.killed, ("writes",)),
        Case("full-disk", "a full disk is said, and survived", recovering.full_disk, ("writes",)),
    ),
    *needing(
        "acknowledge",
        Case("acknowledge", "acknowledge() loses nothing that follows", recovering.acknowledging, ("writes",)),
        Case("forget", "the store forgets what was acknowledged", recovering.forgetting, ("writes", "retained")),
    ),
    Case(
        "lost-position",
        "a position that the store no longer keeps is refused with ResyncRequired",
        recovering.refusing_lost_positions,
        ("writes",),
    ),
    Case(
        "lost-history",
        "after the store lost its history, it is read again from the start",
        recovering.reading_again_without_history,
        ("writes", "forget"),
    ),
    *needing(
        "add column",
        Case("add-column", "an added column comes before its values", schema_changes.added_column),
        Case("drop-column", "a dropped column is gone, rows continue", schema_changes.dropped_column, ("drop column",)),
    ),
    *needing("create table", Case("create-table", "a new table comes with its rows", schema_changes.created_table)),
    Case(
        "rename-column",
        "a renamed column keeps its values",
        schema_changes.renamed_column,
        ("add column", "rename column"),
    ),
    Case("change-type", "a column gets another type", schema_changes.changed_type, ("add column", "change type")),
    Case(
        "required-column",
        "a column that is not null comes with its default",
        schema_changes.required_column,
        ("required column",),
    ),
    Case(
        "rename-table",
        "a renamed table keeps its rows",
        schema_changes.renamed_table,
        ("create table", "rename table"),
    ),
    Case(
        "recreate-table",
        "a dropped table is gone; created again, it is another one",
        schema_changes.recreated_table,
        ("create table", "drop table"),
    ),
    Case("truncate", "a truncated table is empty", schema_changes.truncated_table, ("truncate",)),
    Case(
        "schema-while-stopped",
        "schema changes while the pipeline is stopped arrive in their order",
        late_schema.while_stopped,
        ("add column",),
    ),
    Case(
        "schema-while-behind",
        "schema changes while the adapter is behind arrive in their order",
        late_schema.while_behind,
        ("add column",),
    ),
    Case(
        "schema-at-position",
        "a new adapter continues from positions between schema changes",
        late_schema.from_between,
        ("add column",),
    ),
    Case(
        "schema-in-transaction",
        "schema changes arrive with the rows of their transaction",
        late_schema.in_transactions,
        ("add column", "schema transactions"),
    ),
)
"""Every case, in the order in which they are best read."""


def run_suite(
    make: MakeHarness, cases: Iterable[Case] = CASES, *, folder: Path | None = None, seed: int = SEED
) -> Iterator[Verdict]:
    """Yield the verdict of each case in turn. Each case gets a new harness and a new folder."""
    with tempfile.TemporaryDirectory(prefix="conformance-", dir=folder, ignore_cleanup_errors=True) as scratch:
        for case in cases:
            own = Path(scratch) / case.name
            own.mkdir()
            yield run_case(make(), case, own, seed=seed)


def run_case(harness: Harness, case: Case, folder: Path, *, seed: int = SEED) -> Verdict:
    """One case on a store of its own, in a folder that is empty."""
    began = time.monotonic()
    outcome, message = _outcome(harness, case, folder, seed)
    return Verdict(case.name, case.rule, outcome, message, case.doc, time.monotonic() - began)


def _outcome(harness: Harness, case: Case, folder: Path, seed: int) -> tuple[Outcome, str]:
    try:
        missing = lacking(harness)
        for need in case.needs:
            if need in missing:
                raise NotApplicable(missing[need])
        with _created(harness, folder / "store"), closing(Trial(harness, folder, seed)) as trial:
            case.run(trial)
    except NotApplicable as reason:
        return "not applicable", str(reason)
    except Broken as broken:
        return "broken", str(broken)
    except ChangesourceError as error:
        return "broken", str(as_verdict(error))
    return "kept", ""


@contextmanager
def _created(harness: Harness, folder: Path) -> Iterator[None]:
    """The store, for the length of the block."""
    folder.mkdir()
    try:
        harness.create(folder)
    except Exception as error:
        raise Broken(f"{type(harness).__name__}.create() failed: {type(error).__name__}: {error}") from error
    try:
        yield
    finally:
        harness.close()
