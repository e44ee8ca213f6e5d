"""The application on docs/how-to/named-queries-and-mutators.md runs and does what the page says."""

import sqlite3
from pathlib import Path
from typing import Any

from aiohttp.test_utils import TestClient, TestServer

from tests.docs.fences import blocks, execute

WHERE = "?schema=zero_0&appID=zero"
ANN = {"Authorization": "Bearer token-of-ann"}


def application(path: Path) -> Any:
    names: dict[str, Any] = {"__name__": "app"}
    for block in blocks("docs/how-to/named-queries-and-mutators.md", "python"):
        execute(block, names)
    return names["make_app"](str(path))


def renaming(number: int, title: str, issue: str) -> dict[str, Any]:
    mutation = {"type": "custom", "id": number, "clientID": "c", "name": "issue.setTitle", "timestamp": 1}
    mutations = [{**mutation, "args": [{"id": issue, "title": title}]}]
    return {"clientGroupID": "g", "mutations": mutations, "pushVersion": 1, "timestamp": 1, "requestID": "r"}


async def test_the_page_s_application_answers_and_writes(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE issue (id TEXT PRIMARY KEY NOT NULL, title TEXT, owner TEXT, open BOOLEAN)")
        db.execute("INSERT INTO issue VALUES ('i1', 'old', 'ann', TRUE), ('i2', 'old', 'bob', TRUE)")
    async with TestClient(TestServer(application(path))) as client:

        async def post(place: str, body: Any, headers: dict[str, str] = ANN) -> Any:
            async with client.post(f"/{place}{WHERE}", json=body, headers=headers) as answer:
                return await answer.json() if answer.status == 200 else answer.status

        asked = [{"id": "1", "name": "issue.mine", "args": []}, {"id": "2", "name": "issue.openByOwner", "args": [{}]}]
        answer = await post("query", ["transform", asked])
        assert answer["queries"][0]["ast"]["where"]["right"]["value"] == "ann"
        assert answer["queries"][1]["error"] == "parse"
        assert answer["userID"] == "ann"
        assert (await post("mutate", renaming(1, "new", "i1")))["mutations"][0]["result"] == {}
        assert (await post("mutate", renaming(2, "new", "i2")))["mutations"][0]["result"]["details"] == {"id": "i2"}
        assert (await post("mutate", renaming(3, "x" * 201, "i1")))["mutations"][0]["result"]["error"] == "app"
        assert await post("mutate", renaming(4, "new", "i1"), {}) == 401
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT id, title FROM issue ORDER BY id").fetchall() == [("i1", "new"), ("i2", "old")]
        assert db.execute('SELECT "lastMutationID" FROM "zero_0.clients"').fetchall() == [(3,)]
