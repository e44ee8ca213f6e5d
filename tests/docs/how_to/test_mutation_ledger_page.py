"""The application on docs/how-to/mutation-ledger.md writes where the page says, and the page's figures are current."""

import sqlite3
from pathlib import Path
from typing import Any

from aiohttp.test_utils import TestClient, TestServer

from changesource_sdk.ledger.adapter import WARN_S
from tests.docs.fences import blocks, execute

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "mutation-ledger.md").read_text()
MUTATION = {"type": "custom", "id": 1, "clientID": "c", "name": "event.add", "args": [{"text": "hello"}]}


async def test_the_page_s_application_writes_data_and_confirmation(tmp_path: Path) -> None:
    names: dict[str, Any] = {"__name__": "app"}
    for block in blocks("docs/how-to/mutation-ledger.md", "python"):
        execute(block, names)
    async with TestClient(TestServer(names["make_app"](tmp_path))) as client:
        push = {"clientGroupID": "g", "mutations": [MUTATION], "pushVersion": 1}
        async with client.post("/mutate?schema=zero_0&appID=zero", json=push) as answer:
            assert (await answer.json())["mutations"][0]["result"] == {}
    assert (tmp_path / "events.log").read_text() == "g/c/1 hello\n"
    with sqlite3.connect(tmp_path / "ledger.db") as db:
        assert db.execute("SELECT kind, mutation, positions FROM entry").fetchall() == [("confirm", 1, "[1]")]


def test_the_page_tells_when_the_pipeline_warns() -> None:
    assert f"warns after {WARN_S:g} seconds" in PAGE
