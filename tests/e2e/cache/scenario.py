"""The steps every cache goes through, and what clients must see after each.

A step's transcript holds what was told to each client in it, and what their views then show.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tests.support.apps.server import AppServer
from tests.support.apps.store import AppStore
from tests.support.error_ids import without_error_ids
from tests.support.peers.reference_cache import ReferenceCache
from tests.support.peers.scenario_client import ScenarioClients
from tests.support.peers.serving import Serving
from tests.support.peers.zero_cache import ZeroCache
from tests.support.waiting import until

ANN = "ann"
ISSUES = 8
QUERIES = ("open", "deep", "discussed", "either", "labelled", "newest", "following", "single", "openByOwner")
RECONNECT_SECONDS = 120.0


def issue(number: int) -> str:
    is_open = "TRUE" if number % 2 else "FALSE"
    return f"INSERT INTO issues VALUES ('i{number}', 'issue {number}', {is_open}, 'u{number % 3 + 1}', {1000 + number})"


class Scenario:
    """One cache and its surroundings on the way through `STEPS`."""

    TABLES = (
        "CREATE TABLE users (id TEXT PRIMARY KEY NOT NULL, name TEXT)",
        "CREATE TABLE issues (id TEXT PRIMARY KEY NOT NULL, title TEXT, open BOOLEAN, owner_id TEXT, modified INTEGER)",
        "CREATE TABLE comments (id TEXT PRIMARY KEY NOT NULL, issue_id TEXT, author_id TEXT, body TEXT)",
        "CREATE TABLE labels (id TEXT PRIMARY KEY NOT NULL, name TEXT)",
        "CREATE TABLE issue_labels (issue_id TEXT NOT NULL, label_id TEXT NOT NULL, PRIMARY KEY (issue_id, label_id))",
        *(f"INSERT INTO users VALUES ('u{n}', 'user {n}')" for n in range(1, 4)),
        *(issue(number) for number in range(1, ISSUES + 1)),
        *(f"INSERT INTO comments VALUES ('c{n}', 'i{n}', 'u{n % 3 + 1}', 'a bug in {n}')" for n in (1, 2, 3)),
        "INSERT INTO comments VALUES ('c4', 'i4', 'u1', 'nothing to see')",
        *(f"INSERT INTO labels VALUES ('l{n}', 'label {n}')" for n in range(1, 5)),
        *(f"INSERT INTO issue_labels VALUES ('i{n}', 'l{m}')" for n, m in ((1, 1), (1, 2), (2, 2), (5, 3))),
    )

    def __init__(
        self,
        store: AppStore,
        endpoint: Serving,
        app: AppServer,
        cache: ReferenceCache | ZeroCache,
        clients: ScenarioClients,
    ) -> None:
        self.store, self.endpoint, self.app, self.cache, self.clients = store, endpoint, app, cache, clients

    def run(self) -> dict[str, Any]:
        """The transcript of all steps, in order."""
        transcript = {}
        for step in STEPS:
            self.clients.mark()
            transcript[step] = without_error_ids(getattr(self, step)())
        return transcript

    # --- asking and waiting ---

    def ids(self, query: str, client: str = ANN) -> list[str] | None:
        rows = self.clients.rows(client, query)
        return None if rows is None else [row["id"] for row in rows]

    def title(self, number: int, client: str = ANN, query: str = "deep") -> str | None:
        rows = self.clients.rows(client, query) or []
        return next((row["title"] for row in rows if row["id"] == f"i{number}"), None)

    def wait_for_title(self, number: int, title: str, client: str = ANN, query: str = "deep", **more: float) -> None:
        self.clients.wait(lambda: self.title(number, client, query) == title, f"{client} sees {title!r}", **more)

    def views(self, *queries: str, client: str = ANN) -> dict[str, Any]:
        return {query: self.clients.view(client, query) for query in queries}

    def told(self, *clients: str) -> dict[str, Any]:
        return {client: self.clients.pokes(client) for client in clients}

    # --- the steps ---

    def hydrate(self) -> Any:
        """Every kind of query, ad hoc and named."""
        self.clients.open(ANN, userID=ANN, auth="ann-token")
        for query in QUERIES:
            args = {"following": {"row": {"id": "i3", "modified": 1003}}, "openByOwner": {"owner": "u2"}}.get(query)
            self.clients.query(ANN, query, args)
        for query in QUERIES:
            self.clients.wait(partial(self._is_complete, query), f"{query} complete")
        assert self.ids("open") == ["i1", "i3", "i5", "i7"]
        assert self.ids("discussed") == ["i1", "i2", "i3"]
        assert self.ids("either") == ["i1", "i3", "i4", "i5", "i7"]
        assert self.ids("newest") == ["i8", "i7", "i6"]
        assert self.ids("following") == ["i4", "i5", "i6"]
        assert self.ids("openByOwner") == ["i1", "i7"]
        assert self.clients.rows(ANN, "single")["title"] == "issue 3"
        (first, *_) = self.clients.rows(ANN, "deep")
        assert [issue["id"] for issue in first["comments"][0]["author"]["issues"]] == ["i1", "i4", "i7"]
        assert [label["id"] for label in self.clients.rows(ANN, "labelled")[0]["labels"]] == ["l1", "l2"]
        return self.told(ANN), self.views(*QUERIES)

    def live_insert(self) -> Any:
        self.store.run(issue(9).replace("1009", "2000"), "INSERT INTO issue_labels VALUES ('i9', 'l1')")
        self.clients.wait(lambda: self.ids("newest") == ["i9", "i8", "i7"], "the insert")
        return self.told(ANN), self.views(*QUERIES)

    def live_update(self) -> Any:
        """Rows move into, within and out of queries."""
        self.store.run("UPDATE issues SET open = NOT open, modified = modified + 3000 WHERE id IN ('i3', 'i4')")
        self.clients.wait(lambda: self.ids("newest") == ["i4", "i3", "i9"], "the update")
        assert self.ids("open") == ["i1", "i4", "i5", "i7", "i9"]
        return self.told(ANN), self.views(*QUERIES)

    def live_delete(self) -> Any:
        self.store.run("DELETE FROM comments WHERE id = 'c2'", "DELETE FROM issue_labels WHERE issue_id = 'i1'")
        self.clients.wait(lambda: self.ids("discussed") == ["i1", "i3"], "the delete")
        assert self.clients.rows(ANN, "labelled")[0]["labels"] == []
        return self.told(ANN), self.views(*QUERIES)

    def accepted_mutation(self) -> Any:
        self.clients.mutate(ANN, 1, "i7", "by mutation")
        outcome = self.clients.wait(lambda: self.clients.outcome(ANN, 1), "the mutation's outcome")
        assert outcome["type"] == "success"
        self.wait_for_title(7, "by mutation")
        assert self.store.query("SELECT title FROM issues WHERE id = 'i7'") == [("by mutation",)]
        told = self.told(ANN)
        assert told[ANN]["confirmed"] == {ANN: 1}
        return told, self.views(*QUERIES)

    def rejected_mutation(self) -> Any:
        """The optimistic title goes away again, and the result is cleaned up once it was seen."""
        return self._refused(2, "forbidden", "not allowed by the server")

    def mutation_with_wrong_arguments(self) -> Any:
        return self._refused(3, 7, "invalid arguments for issue.setTitle: title: Input should be a valid string")

    def mutator_that_breaks_down(self) -> Any:
        return self._refused(4, "crash", "error id")

    def mutator_nobody_knows(self) -> Any:
        return self._refused(5, "unknown", "Mutator not found: issue.nobodyKnows", mutator="nobodyKnows")

    def _refused(self, number: int, title: Any, message: str, **options: str) -> Any:
        self.clients.mutate(ANN, number, "i7", title, **options)
        outcome = self.clients.wait(lambda: self.clients.outcome(ANN, number), "the mutation's outcome")
        assert outcome["type"] == "error"
        assert message in outcome["error"]["message"]
        self.wait_for_title(7, "by mutation")
        titles = [row["title"] for rows in self.clients.shown(ANN, "deep") for row in rows if row["id"] == "i7"]
        assert title in titles
        gone = f"{ANN}:{number}"
        self.clients.wait(lambda: self.told(ANN)[ANN]["results"].get(gone, [""])[0] == "del", "the result cleaned up")
        assert self.store.query("SELECT * FROM {mutations}") == []
        assert self.store.query("SELECT title FROM issues WHERE id = 'i7'") == [("by mutation",)]
        return self.told(ANN), outcome

    def push_that_comes_twice(self) -> Any:
        """The application wrote it and its answer was lost: the cache asks again, and it is not done again."""
        self.app.answers_to_lose = 1
        before = len(self._pushes())
        self.clients.mutate(ANN, 6, "i7", "once")
        outcome = self.clients.wait(lambda: self.clients.outcome(ANN, 6), "the mutation's outcome")
        assert outcome["type"] == "success"
        self.wait_for_title(7, "once")
        self.clients.wait(lambda: len(self._pushes()) >= before + 2, "the push again")
        assert self._pushes()[before:] == [[6], [6]]
        return self.told(ANN), outcome

    def _is_complete(self, query: str) -> bool:
        return self.clients.rows(ANN, query) is not None

    def _has_lost_a_query(self, client: str) -> bool:
        return "del" in self.clients.pokes(client)["got"].values()

    def _pushes(self) -> list[list[int]]:
        """The ids of the mutations in each push so far."""
        bodies = [body for kind, body in self.app.requests if kind == "mutate"]
        pushes = [[each["id"] for each in body["mutations"] if each["id"]] for body in bodies]
        return [ids for ids in pushes if ids]

    def token_that_expires(self) -> Any:
        """What was pushed with it is pushed again with the new one, with the next mutation at the latest."""
        self.app.accepted.remove("Bearer ann-token")
        self.clients.mutate(ANN, 7, "i7", "after hours")
        self.clients.wait(lambda: self.clients.state(ANN) == "needs-auth", "credentials asked for")
        refused = self.clients.last("connection", ANN)
        assert self.title(7) == "after hours"
        assert self.store.query("SELECT title FROM issues WHERE id = 'i7'") == [("once",)]
        self.app.accepted |= {"Bearer ann-token", "Bearer ann-renewed"}
        self.clients.connect(ANN, "ann-renewed")
        self.clients.wait(lambda: self.clients.state(ANN) == "connected", "the renewed connection")
        self.clients.mutate(ANN, 8, "i7", "next morning")
        self.clients.wait(lambda: self.told(ANN)[ANN]["confirmed"] == {ANN: 8}, "both mutations confirmed")
        self.wait_for_title(7, "next morning")
        assert self.store.query("SELECT title FROM issues WHERE id = 'i7'") == [("next morning",)]
        return refused, self.told(ANN)[ANN]["rows"]

    def second_client_of_the_group(self) -> Any:
        self.clients.open("tab", userID=ANN, auth="ann-token")
        groups = {self.clients.last("opened", client)["groupID"] for client in (ANN, "tab")}  # type: ignore[index]
        assert len(groups) == 1
        self.clients.query("tab", "open")
        self.clients.wait(lambda: self.ids("open", "tab") == ["i1", "i4", "i5", "i7", "i9"], "the second client's rows")
        self.store.run("UPDATE issues SET title = 'for both' WHERE id = 'i1'")
        self.wait_for_title(1, "for both")
        self.wait_for_title(1, "for both", "tab", "open")
        # Where the second client starts from depends on how much the first had written to their common storage.
        return self.told(ANN), self.views("open", client="tab")

    def expired_query(self) -> Any:
        """A query nobody wants any more is kept for its time to live, then its rows are taken back."""
        self.clients.query(ANN, "people", ttl=500)
        self.clients.wait(lambda: self.ids("people") == ["u1", "u2", "u3"], "the people")
        self.clients.drop(ANN, "people")
        for client in (ANN, "tab"):
            self.clients.wait(partial(self._has_lost_a_query, client), "the query gone")
        return self.told(ANN, "tab")

    def unknown_named_query(self) -> Any:
        return self._failing_query("nobodyKnows")

    def named_query_with_wrong_arguments(self) -> Any:
        (error,) = self._failing_query("misused")[0]
        assert error["error"] == "parse"
        return error

    def _failing_query(self, query: str) -> Any:
        self.clients.query(ANN, query)
        self.clients.wait(lambda: (self.clients.view(ANN, query) or ("",))[0] == "error", "the query's error")
        self.clients.drop(ANN, query)
        return self.clients.frames(ANN, "transformError")

    def refused_and_refreshed_credentials(self) -> Any:
        self.clients.open("bob", userID="bob", auth="stale")
        self.clients.query("bob", "unusedLabels")
        self.clients.wait(lambda: self.clients.state("bob") == "needs-auth", "credentials asked for")
        refused = self.clients.last("connection", "bob")
        assert self.clients.rows("bob", "unusedLabels") is None
        self.clients.connect("bob", "bob-token")
        self.clients.wait(lambda: self.ids("unusedLabels", "bob") == ["l4"], "rows with new credentials")
        return refused, self.told("bob")

    def schema_that_does_not_fit(self) -> Any:
        self.clients.open("misfit", schema="misfit", userID="misfit", auth="misfit-token")
        self.clients.query("misfit", "colours")
        needed = self.clients.wait(lambda: self.clients.last("update-needed", "misfit"), "an update asked for")
        kinds = [error["kind"] for error in self.clients.frames("misfit", "error")]
        return needed["reason"], kinds

    def cache_killed(self) -> Any:
        """Clients come back with their cookies and get the difference, nothing else."""
        self.cache.kill()
        self.store.run("UPDATE issues SET title = 'while away' WHERE id = 'i5'")
        self.clients.mark()
        self.cache.start()
        for client, query in ((ANN, "deep"), ("tab", "open")):
            self.wait_for_title(5, "while away", client, query, seconds=RECONNECT_SECONDS)
        self.clients.wait(lambda: self.clients.state("bob") == "connected", "bob back", seconds=RECONNECT_SECONDS)
        assert all(socket["cookie"] for client in (ANN, "tab") for socket in self.clients.sockets(client))
        # They have one storage: who comes back second may have found there what the first was told, and its cookie.
        first, second = self.told(ANN, "tab").values()
        told = {kind: first[kind] | second[kind] for kind in first}
        assert list(told["rows"]) == ['issues:["i5"]']
        return told

    def endpoint_killed(self) -> Any:
        self.endpoint.kill()
        self.store.run("UPDATE issues SET title = 'endpoint away' WHERE id = 'i5'")
        self.endpoint.start()
        self.wait_for_title(5, "endpoint away", seconds=RECONNECT_SECONDS)
        self.clients.wait(lambda: self.clients.pokes("tab")["rows"], "the other told, too")
        return self.told(ANN, "tab")

    def new_column(self) -> Any:
        """Clients that do not know the column go on; rows carry it from then on."""
        self.store.run("ALTER TABLE issues ADD COLUMN priority INTEGER")
        self.store.run("UPDATE issues SET priority = 7, title = 'with priority' WHERE id = 'i1'")
        self.wait_for_title(1, "with priority", seconds=RECONNECT_SECONDS)
        rows = self.told(ANN)[ANN]["rows"]
        assert rows['issues:["i1"]'][1]["priority"] == 7
        return rows['issues:["i1"]'], self.clients.state(ANN)

    def goodbye(self) -> Any:
        """Other clients do not notice that one leaves."""
        self.clients.close("tab")
        self.store.run("UPDATE issues SET title = 'the end' WHERE id = 'i1'")
        self.wait_for_title(1, "the end")
        until(lambda: self.clients.state("tab") == "closed", "the second client closed")
        return self.clients.state(ANN)


STEPS: Sequence[str] = (
    "hydrate",
    "live_insert",
    "live_update",
    "live_delete",
    "accepted_mutation",
    "rejected_mutation",
    "mutation_with_wrong_arguments",
    "mutator_that_breaks_down",
    "mutator_nobody_knows",
    "push_that_comes_twice",
    "token_that_expires",
    "second_client_of_the_group",
    "expired_query",
    "unknown_named_query",
    "named_query_with_wrong_arguments",
    "refused_and_refreshed_credentials",
    "schema_that_does_not_fit",
    "cache_killed",
    "endpoint_killed",
    "new_column",
    "goodbye",
)
