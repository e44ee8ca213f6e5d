"""The page on credentials: its client renews its token, and the figures are the code's."""

import asyncio
from pathlib import Path
from typing import Any

from reference_cache.sync_server.access.auth import CLOSE_CODE
from reference_cache.sync_server.access.jwks import KEPT_SECONDS, PAUSE_SECONDS
from reference_cache.sync_server.access.jwt import LEAST_RSA_BITS
from reference_cache.zql.schema import schema, table
from tests.docs.fences import blocks, execute

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "authenticate.md").read_text()


async def test_the_client_of_the_page_fetches_a_token_before_it_connects() -> None:
    (source,) = blocks("docs/how-to/authenticate.md", "python")
    names: dict[str, Any] = {}
    execute(source, names)
    asked: asyncio.Queue[str] = asyncio.Queue()

    async def fetch(user: str) -> str:
        await asked.put(user)
        return "token"

    things = schema([table("thing", {"id": "string"})], {})
    async with names["client_of"]("http://127.0.0.1:9", things, "ann", fetch) as client:
        assert await asyncio.wait_for(asked.get(), 120) == "ann"
        assert client.state.name == "connecting"


def test_the_figures_on_the_page_are_current() -> None:
    assert f"kept for {KEPT_SECONDS / 60:g} minutes" in PAGE
    assert f"at most every {PAUSE_SECONDS:g} seconds" in PAGE
    assert f"RSA of {LEAST_RSA_BITS} bits" in PAGE
    assert f"code {CLOSE_CODE}" in PAGE
