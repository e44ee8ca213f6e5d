"""One poll: every table is listed and compared with the digest file; the result is what a transaction needs.

Nothing is written to the digest file while rows are listed. If a listing fails half-way, or is closed, all that was
staged is dropped, so no delete is ever inferred from a part of a listing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from changesource_sdk.adapter import Change, Delete, Insert, Truncate, Update
from changesource_sdk.by_difference.digest_file import DigestFile
from changesource_sdk.by_difference.listing import Listing
from changesource_sdk.by_difference.row_digests import RowDigester
from changesource_sdk.by_difference.scratch import Scratch
from changesource_sdk.by_difference.versions import RememberedTable, Version, without_defaults
from changesource_sdk.errors import AdapterError
from changesource_sdk.schema import Table
from changesource_sdk.schema_diff import has_altered_kind, schema_diff_by_name

IDS_PER_VERSION = 1 << 20
"""Table ids are numbers of versions times this, plus the number of the table, so that no id is used twice."""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """How one table is compared: with the digests of `remembered`, or with nothing if it `is_new`."""

    remembered: RememberedTable
    digester: RowDigester
    is_new: bool


@dataclass(frozen=True, slots=True)
class PollPlan:
    """All tables of a poll. `changes` come before all rows; rows of the `dropped` table ids are forgotten."""

    tables: Sequence[TablePlan]
    changes: Sequence[Change] = ()
    dropped: Sequence[int] = ()


@dataclass(slots=True)
class Comparison:
    """A poll in progress. `compare` table by table, then `changes` if `has_changes`."""

    file: DigestFile
    scratch: Scratch
    plan: PollPlan
    most_deletes: float
    # What will be remembered of each table that was compared; `compare` appends.
    tables: list[RememberedTable] = field(default_factory=list)

    def compare(self, plan: TablePlan, listing: Listing) -> None:
        """List one table and stage what differs. Raises what the author's listing raises."""
        began = time.time()
        remembered = plan.remembered
        matched = self._stage_rows(remembered, listing)
        if listing.is_complete and not plan.is_new:
            self._stage_deletes(remembered, matched)
        cursor = remembered.cursor if listing.cursor is None else listing.cursor
        listed_at = began if listing.is_complete else remembered.listed_at
        self.tables.append(replace(remembered, cursor=cursor, listed_at=listed_at))

    def _stage_rows(self, remembered: RememberedTable, listing: Listing) -> int:
        """Stage rows that are new or differ; returns how many of the remembered rows came."""
        matched = 0
        self.scratch.forget_seen()
        for batch in listing.batches():
            rows = self.scratch.see(remembered.table.full_name, batch) if listing.is_complete else batch
            known = self.file.digests(remembered.id, (row.key for row in rows))
            matched += len(known)
            for row in rows:
                before = known.get(row.key)
                # An incomplete listing may change a row twice; a complete one has each key once.
                if before != row.digest or not listing.is_complete:
                    self.scratch.add(remembered.id, row.key, before, row.digest, row.row)
        return matched

    def _stage_deletes(self, remembered: RememberedTable, matched: int) -> None:
        count = self.file.count(remembered.id)
        missing = count - matched
        if missing > self.most_deletes * count:
            raise AdapterError(
                "too-many-deletes",
                f"a listing lacks {missing} of {count} rows, more than `most_deletes` allows",
                f"table {remembered.table.full_name}",
                "if the rows were deleted, raise `most_deletes` or request a new snapshot; else correct the listing",
            )
        if missing:
            for keys in self.file.scan(remembered.id):
                for key, digest in self.scratch.unseen(keys):
                    self.scratch.add(remembered.id, key, digest, None, None)

    def has_changes(self) -> bool:
        """Whether there is anything to send."""
        return bool(self.plan.changes) or not self.scratch.is_empty()

    def changes(self) -> Iterator[Change]:
        """Schema changes, deletes, then rows.

        A table with a unique index gets changed rows as delete and insert, and all deletes first: two rows may have
        exchanged their values, and an update would meet the value in the other row.
        """
        plans = {plan.remembered.id: plan for plan in self.plan.tables}
        yield from self.plan.changes
        for row in self.scratch.deleted():
            yield _delete(plans[row.table], row.key)
        split = {id for id, plan in plans.items() if any(index.unique for index in plan.remembered.table.indexes)}
        for id in split:
            yield from (_delete(plans[id], row.key) for row in self.scratch.replaced(id))
        for row in self.scratch.written():
            assert row.row is not None
            name = plans[row.table].remembered.table.full_name
            yield Insert(name, row.row) if row.is_new or row.table in split else Update(name, row.row)


def _delete(plan: TablePlan, key: str) -> Delete:
    return Delete(plan.remembered.table.full_name, plan.digester.key_row(key))


def first_tables(declared: Sequence[Table]) -> list[RememberedTable]:
    """What is remembered of tables before their first listing."""
    return [RememberedTable(number, table) for number, table in enumerate(without_defaults(declared))]


def plan_poll(version: Version, declared: Sequence[Table]) -> PollPlan:
    """Compare the declared tables with those of a version. Tables and columns are known by their names.

    A table with another key is dropped and created, one with another type of a column is truncated; all rows of both
    are sent again. Pure.
    """
    tables = without_defaults(declared)
    diff = schema_diff_by_name([each.table for each in version.tables], tables)
    known = {each.table.full_name: each for each in version.tables}
    kept = {now.name: (was, now) for was, now in diff.kept}
    plans: list[TablePlan] = []
    truncated: list[str] = []
    for number, table in enumerate(tables):
        name, id = table.full_name, (version.number + 1) * IDS_PER_VERSION + number
        pair = kept.get(name)
        is_new = pair is None or has_altered_kind(*pair)
        if is_new and pair is not None:
            truncated.append(name)
        remembered = RememberedTable(id, table) if is_new else known[name]
        if remembered.table != table:
            # Without its cursor the table is listed whole: rows written long ago have values in a new column, too.
            remembered = replace(remembered, table=table, cursor=None)
        plans.append(TablePlan(remembered, RowDigester(table), is_new))
    changes: list[Change] = [*diff.changes, *([Truncate(truncated)] if truncated else [])]
    used = {plan.remembered.id for plan in plans}
    return PollPlan(plans, changes, [each.id for each in version.tables if each.id not in used])
