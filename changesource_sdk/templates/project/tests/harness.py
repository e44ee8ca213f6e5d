"""How the conformance suite gets an empty store and writes to it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from my_store import MyStore

from changesource_sdk import Change, Delete, Insert, Row, Update
from changesource_sdk.testing.conformance import Harness


class MyStoreHarness(Harness):
    """A file of JSON lines. What your store cannot do belongs in `lacks`."""

    adapter = MyStore
    lacks = ("schema changes", "acknowledge")

    def create(self, folder: Path) -> None:
        """An empty store."""
        self.path = folder / "items.jsonl"  # the upstream of one test
        self.path.touch()
        self.rows: dict[object, Row] = {}  # by id, as `commit` leaves them

    def settings(self) -> Mapping[str, object]:
        """What the adapter is made with."""
        return {"path": str(self.path)}

    def forget(self) -> None:
        """A new file with all rows takes the place of the old one, whose lines are lost."""
        rotated = self.path.with_suffix(".new")
        rotated.write_text(json.dumps({"removed": [], "written": list(self.rows.values())}) + "\n")
        rotated.replace(self.path)

    def commit(self, changes: Sequence[Change]) -> None:
        """All changes as one transaction."""
        removed: list[object] = []
        for change in changes:
            match change:
                case Insert(_, row):
                    self.rows[row["id"]] = row
                case Update(_, row, old_key):
                    old = self.rows.pop((old_key or row)["id"])
                    self.rows[row["id"]] = {**old, **row}
                    removed.append((old_key or row)["id"])
                case Delete(_, key):
                    del self.rows[key["id"]]
                    removed.append(key["id"])
                case _:
                    raise NotImplementedError(type(change).__name__)
        touched = dict.fromkeys(change.row["id"] for change in changes if isinstance(change, Insert | Update))
        written = [self.rows[key] for key in touched if key in self.rows]
        with self.path.open("a") as file:
            file.write(json.dumps({"removed": removed, "written": written}) + "\n")
