"""The official Zero client, run in Node against a zero-cache.

Contract: `rows(table)` is what the client's view shows now; `wait_for_rows` returns when it shows exactly that.
Connection changes, restarts ("the page reloaded") and errors are kept in `events`, in order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.child_process import ChildProcess
from tests.support.tools import node, node_modules
from tests.support.waiting import LONGEST_WAIT_S, until

CLIENT = Path(__file__).parents[1] / "node" / "client.mjs"
Row = Mapping[str, object]


class ZeroClient:
    """One client process; `tables` maps a table to its columns' ZQL types, the first column being the key.

    `related` maps a table to the rows of others that its query brings along: name, to column, table and its column.
    """

    def __init__(
        self,
        server: str,
        tables: Mapping[str, Mapping[str, str]],
        *,
        user: str = "someone",
        related: Mapping[str, Mapping[str, tuple[str, str, str]]] | None = None,
    ) -> None:
        schema: dict[str, dict[str, object]] = {
            name: {"columns": columns, "primaryKey": [next(iter(columns))]} for name, columns in tables.items()
        }
        for name, each in (related or {}).items():
            keys = ("column", "table", "tableColumn")
            schema[name]["related"] = {as_name: dict(zip(keys, to, strict=True)) for as_name, to in each.items()}
        settings = {"server": server, "userID": user, "tables": schema}
        self._process = ChildProcess(
            [node(), CLIENT],
            env={"TEST_NODE_MODULES": str(node_modules()), "TEST_CLIENT": json.dumps(settings)},
        )

    def __enter__(self) -> ZeroClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in list(self._process.lines) if line.startswith("{")]

    def rows(self, table: str) -> Sequence[Row] | None:
        """The newest complete result of the table's query, None before there is one."""
        for event in reversed(self.events):
            if event["event"] == "rows" and event["table"] == table and event["result"] == "complete":
                rows: list[Row] = event["rows"]
                return rows
        return None

    def wait_for_rows(self, table: str, expected: Sequence[Row], *, seconds: float = LONGEST_WAIT_S) -> None:
        try:
            until(lambda: self.rows(table) == expected, f"client rows of {table}", seconds=seconds, alive=self._check)
        except AssertionError as error:
            raise AssertionError(f"expected {expected!r}, the client said\n{self._process.tail()}") from error

    def _check(self) -> None:
        assert self._process.running, f"the client ended with {self._process.code}"
