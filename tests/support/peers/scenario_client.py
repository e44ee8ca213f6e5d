"""Official Zero clients that a test drives step by step, and what their caches said to them.

Contract: `view(client, query)` is the newest result and rows a client shows; `wait_for` returns when an expectation of
it holds. `mark()` begins a step: `pokes(client)` gives what the client was told since then, without what may differ
between two caches that both are right (versions, ids, the borders between pokes and their parts).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.child_process import ChildProcess
from tests.support.tools import node, node_modules
from tests.support.waiting import LONGEST_WAIT_S, until

SCRIPT = Path(__file__).parents[1] / "node" / "scenario_client.mjs"
KEYS = {"issue_labels": ("issue_id", "label_id")}
Event = dict[str, Any]


class ScenarioClients:
    """One Node process with any number of clients, by name."""

    def __init__(self, server: str) -> None:
        env = {"TEST_NODE_MODULES": str(node_modules()), "TEST_CLIENT": json.dumps({"server": server})}
        self._process = ChildProcess([node(), SCRIPT], env=env, takes_lines=True)
        self._events: list[Event] = []
        self._read = 0
        self._marks: list[int] = [0]
        self._ids: dict[str, str] = {}

    def __enter__(self) -> ScenarioClients:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()

    # --- what clients do ---

    def open(self, client: str, **options: Any) -> None:
        self._do("open", client, **options)
        opened = self.wait(lambda: self.last("opened", client), f"{client} opened")
        self._ids[opened["clientID"]] = client

    def query(self, client: str, query: str, args: Any = None, **options: Any) -> None:
        self._do("query", client, query=query, args=args, **options)

    def drop(self, client: str, query: str) -> None:
        self._do("drop", client, query=query)

    def mutate(self, client: str, number: int, issue: str, title: Any, **options: Any) -> None:
        self._do("mutate", client, number=number, id=issue, title=title, **options)

    def connect(self, client: str, auth: str | None = None) -> None:
        self._do("connect", client, **({} if auth is None else {"auth": auth}))

    def close(self, client: str) -> None:
        self._do("close", client)

    def _do(self, what: str, client: str, **command: Any) -> None:
        self._process.write_line(json.dumps({"do": what, "client": client, **command}))

    # --- what clients show ---

    def view(self, client: str, query: str) -> tuple[str, Any] | None:
        """How far a query is (`unknown`, `complete`, `error`) and its rows, None before there are any."""
        for event in reversed(self.events()):
            if event["event"] == "rows" and (event["client"], event["query"]) == (client, query):
                return event["result"], event["rows"]
        return None

    def rows(self, client: str, query: str) -> Any:
        """The rows of a query that is complete, else None."""
        shown = self.view(client, query)
        return shown[1] if shown is not None and shown[0] == "complete" else None

    def shown(self, client: str, query: str) -> list[Any]:
        """All the rows a query showed in this step, one after the other."""
        return [
            event["rows"]
            for event in self.events()[self._marks[-1] :]
            if event["event"] == "rows" and (event["client"], event["query"]) == (client, query)
        ]

    def outcome(self, client: str, number: int, side: str = "server") -> Any:
        """How a mutation ended, None while it has not."""
        for event in self.events():
            if event["event"] == "mutated" and (event["client"], event["number"], event["side"]) == (
                client,
                number,
                side,
            ):
                return event["outcome"]
        return None

    def state(self, client: str) -> str | None:
        """The newest connection state."""
        found = self.last("connection", client)
        return found["state"] if found else None

    def last(self, event: str, client: str) -> Event | None:
        """The newest event of a kind of a client."""
        return next(
            (each for each in reversed(self.events()) if (each["event"], each.get("client")) == (event, client)), None
        )

    def wait(self, ask: Callable[[], Any], what: str, *, seconds: float = LONGEST_WAIT_S) -> Any:
        try:
            return until(ask, what, seconds=seconds, alive=self._check)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._process.tail(30)}") from None

    def events(self) -> list[Event]:
        lines = self._process.lines
        while self._read < len(lines):
            line = lines[self._read]
            self._read += 1
            self._events.append(json.loads(line) if line.startswith("{") else {"event": "log", "text": line})
        return self._events

    def _check(self) -> None:
        assert self._process.running, f"the clients ended with {self._process.code}"
        assert not [each for each in self.events() if each["event"] == "error"]

    # --- what caches said ---

    def mark(self) -> None:
        """A step begins."""
        self._marks.append(len(self.events()))

    def frames(self, client: str, *tags: str) -> list[Any]:
        """Bodies of the messages a client got in this step."""
        return [
            each["message"][1]
            for each in self.events()[self._marks[-1] :]
            if each["event"] == "frame" and self._ids.get(each["clientID"]) == client and each["message"][0] in tags
        ]

    def sockets(self, client: str) -> list[Event]:
        """The sockets a client opened in this step, with the cookie it came with."""
        mine = [client_id for client_id, name in self._ids.items() if name == client]
        return [
            each for each in self.events()[self._marks[-1] :] if each["event"] == "socket" and each["clientID"] in mine
        ]

    def pokes(self, client: str) -> dict[str, Any]:
        """All that the pokes of this step told a client, taken together; the last word on a row counts."""
        rows: dict[str, Any] = {}
        told: dict[str, Any] = {"rows": rows, "got": {}, "desired": {}, "confirmed": {}, "results": {}}
        for part in self.frames(client, "pokePart"):
            for patch in part.get("rowsPatch", ()):
                rows[_row_key(patch)] = [patch["op"], patch.get("value")]
            for patch in part.get("gotQueriesPatch", ()):
                told["got"][patch["hash"]] = patch["op"]
            for client_id, patches in part.get("desiredQueriesPatches", {}).items():
                name = self._ids.get(client_id, client_id)
                told["desired"].setdefault(name, {}).update({each["hash"]: each["op"] for each in patches})
            for client_id, number in part.get("lastMutationIDChanges", {}).items():
                told["confirmed"][self._ids.get(client_id, client_id)] = number
            for patch in part.get("mutationsPatch", ()):
                self._add_result(told["results"], patch)
        return told

    def _add_result(self, results: dict[str, Any], patch: Any) -> None:
        mutation = patch["mutation"] if patch["op"] == "put" else patch
        name = self._ids.get(mutation["id"]["clientID"], mutation["id"]["clientID"])
        results[f"{name}:{mutation['id']['id']}"] = [patch["op"], mutation.get("result")]


def _row_key(patch: Any) -> str:
    source = patch["value"] if patch["op"] == "put" else patch["id"]
    key = [source[column] for column in KEYS.get(patch["tableName"], ("id",))]
    return f"{patch['tableName']}:{json.dumps(key)}"
