"""A distinct query that runs for one or more client groups, and what a transaction did to its rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from protocol.sync.ast import Query
from protocol.sync.ast_json import to_json
from protocol.sync.js_json import stringify
from reference_cache.view_syncer.cvr.records import Change, RecordedQuery
from reference_cache.view_syncer.pipelines.digest import Digest
from reference_cache.view_syncer.pipelines.evaluation import Evaluation, KeyChoice
from reference_cache.view_syncer.pipelines.row_keys import RowKeys
from reference_cache.zql.engine.row_set import RowId, RowSet
from reference_cache.zql.engine.shared import SharedQuery
from reference_cache.zql.schema import Row

if TYPE_CHECKING:
    from reference_cache.view_syncer.client_group import ClientGroup

MOST_QUERY_KEYS = 1024
"""Keys that an evaluation remembers: many groups ask for the same queries. Those of large queries it does not."""


def query_key(query: Query, choice: KeyChoice, evaluation: Evaluation) -> str:
    """What tells queries apart, durably. Not to be forged: whoever has the same key gets the same rows."""
    known = evaluation.query_keys
    found = known.get(query)
    if found is None:
        if len(known) >= MOST_QUERY_KEYS:
            known.clear()
        found = known[query] = derive_key(query, choice, evaluation)
    return found


def derive_key(query: Query, choice: KeyChoice, evaluation: Evaluation) -> str:
    """The key, worked out; may run in any thread."""
    text = stringify(to_json(evaluation.shared.identity(query)))
    named = orjson.dumps(choice) if choice else b""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass") + named).hexdigest()


@dataclass(slots=True, eq=False)
class Patch:
    """A row of a query's set came or changed (`row`), or left (None). `key` is the row's key as clients know it."""

    row_id: RowId
    key: str
    row: Row | None

    def change(self) -> Change:
        """As it is recorded."""
        row = self.row
        return self.row_id[0], self.key, "" if row is None else row[-1], row is not None


class LiveQuery:
    """A running query. Invariant: between transactions its records in the file are exactly its rows, and `groups` are
    the groups whose view it is part of."""

    __slots__ = (
        "choice",
        "evaluation",
        "groups",
        "hydration",
        "key",
        "query",
        "recorded",
        "shared",
        "updates",
        "users",
    )

    def __init__(self, key: str, query: Query, choice: KeyChoice, evaluation: Evaluation) -> None:
        self.key = key
        self.query = query
        self.choice = choice
        self.evaluation = evaluation
        self.shared: SharedQuery = evaluation.shared.find(query)
        self.recorded = RecordedQuery(0)
        self.groups: set[ClientGroup] = set()
        self.users = 0
        self.hydration = 0.0
        self.updates: Digest | None = None

    @property
    def id(self) -> int:
        """Its number in the file."""
        return self.recorded.id

    @property
    def held(self) -> RowSet:
        """Its rows."""
        return self.shared.held

    @property
    def keys(self) -> RowKeys:
        return self.evaluation.keys

    def metrics(self) -> dict[str, Any]:
        """How long it took to start, and to follow changes, in milliseconds."""
        updates = Digest() if self.updates is None else self.updates
        return {"query-hydration-server-ms": self.hydration * 1000, "query-update-server": updates.to_json()}

    def note_update(self, seconds: float) -> None:
        """A transaction that concerned the query took this long."""
        if self.updates is None:
            self.updates = Digest()
        self.updates.add(seconds * 1000)

    def move_to(self, evaluation: Evaluation) -> None:
        """The query has been started in another evaluation."""
        self.evaluation = evaluation
        self.shared = evaluation.shared.find(self.query)

    def patches(self) -> Iterator[Patch]:
        """What a transaction did. To be read to the end."""
        for patch in self.shared.patches():
            keys = self.keys[patch.table]
            row_id = patch.table, patch.key
            row = patch.row
            if row is not None:
                yield Patch(row_id, keys.text(row), row)
            elif patch.before is not None:
                yield Patch(row_id, keys.text(patch.before), None)
