"""The page about upstreams without a log: its adapter runs, served by its command, to a consumer."""

from pathlib import Path

from changesource_sdk.testing.fake_cache import FakeCache
from examples.http_notes import http_notes
from tests.docs.fences import ROOT, block
from tests.support.ports import free_port
from tests.support.reader import Reader

PAGE = "docs/how-to/by-difference.md"
HEAD = "id,title\n1,Dune\n"


async def test_the_page_s_adapter_follows_a_file(tmp_path: Path) -> None:
    port = free_port()
    reader = Reader(tmp_path / "empty", places={"127.0.0.1:4810": f"127.0.0.1:{port}"})
    reader.write("shelf.py", block(PAGE, "# shelf.py"))
    reader.write("books.csv", HEAD + "2,Emma\n")
    with reader.serve(f"{block(PAGE, 'changesource serve').strip()} --permissions allow-all"):
        cache = FakeCache(f"ws://127.0.0.1:{port}/changes/v0/stream", timeout=30)
        await cache.initial_sync()
        async with cache.stream():
            reader.write("books.csv", HEAD + "3,Ulysses\n")
            await cache.until(lambda: {row["title"] for row in cache.rows("book").values()} == {"Dune", "Ulysses"})


def test_the_page_counts_the_lines_of_the_example() -> None:
    count = len(Path(http_notes.__file__).read_text().splitlines())
    assert f"adapter of {count} lines" in (ROOT / PAGE).read_text()
