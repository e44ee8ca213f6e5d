"""The demo's page in a real browser: what a person sees who edits, goes offline, and stops things.

Every test edits an issue of its own, so that they do not see each other's edits.
"""

from __future__ import annotations

import asyncio
import json
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import pytest
from playwright.async_api import Browser, Page

from changesource_demo.app.tracker import SCHEMA
from protocol.sync.ast_json import to_json
from reference_cache.zql.query.builder import Queries, QueryBuilder
from tests.changesource_demo.conftest import SECONDS, RunningDemo
from tests.docs.fences import block
from tests.support.peers.browser import Screen, errors_of, open_page, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(SECONDS + 300), pytest.mark.asyncio(loop_scope="module")]

ISSUES = Queries(SCHEMA).table("issue")
CARDS_THAT_BURST = """(() => {
  const fill = (selector, text) => document.querySelectorAll(selector).forEach(each => { each.textContent = text; });
  fill(".stage .figure", "123,456");
  fill(".stage button", "Stopping…");
  fill(".stage dl div:last-child dd", "59 min ago");
  const boxes = [...document.querySelectorAll(".stage dl div, .stage .value, .stage button")];
  return boxes.filter(box => box.scrollWidth > box.clientWidth).map(box => box.innerText);
})()"""
"""What sticks out of its card when every text is as long as it gets; the next picture makes them true again."""


async def opened(browser: Browser, demo: RunningDemo, screen: Screen | None = None) -> Page:
    """The page, once both clients show their issues."""
    page = await open_page(browser, demo.url, screen)
    await until(page, "document.querySelectorAll('.issue').length === 10")
    await until(page, "demo.panes.every(pane => pane.client.state === 'connected')")
    return page


def title_field(pane: str, issue: int) -> str:
    return f"#pane-{pane} .issue[data-id='{issue}'] input"


def has_title(pane: str, issue: int, title: str) -> str:
    """A condition on the page."""
    return f"document.querySelector({json.dumps(title_field(pane, issue))}).value === {json.dumps(title)}"


def words(pane: str) -> str:
    return f"document.querySelector('#pane-{pane} .words').textContent"


def figure(stage: str) -> str:
    return f"Number(document.querySelector(\".stage[data-name='{stage}'] .figure\").textContent.replace(/,/g, ''))"


async def edit(page: Page, pane: str, issue: int, title: str) -> None:
    """Type a title and press Enter."""
    await page.fill(title_field(pane, issue), title)
    await page.keyboard.press("Enter")


async def next_picture(page: Page) -> None:
    """Wait for one that was made after now; the next may have been on its way."""
    drawn = await page.evaluate("demo.drawn")
    await until(page, f"demo.drawn >= {drawn + 2}")


def unit(stage: str, name: str) -> str:
    """A number below a stage's figure."""
    line = f"[...document.querySelectorAll(\".stage[data-name='{stage}'] dl div\")]"
    found = f"{line}.find(each => each.firstChild.textContent === '{name}').lastChild.textContent"
    return f"Number({found}.replace(/,/g, ''))"


async def press_stage(page: Page, stage: str, verb: str) -> None:
    """Press a stage's button, from the keyboard, once it offers what is wanted."""
    button = f"document.querySelector(\"button[data-stage='{stage}']\")"
    await until(page, f"{button}.textContent === {json.dumps(verb)} && !{button}.disabled")
    await page.evaluate(f"{button}.focus()")
    await page.keyboard.press("Enter")


async def test_the_page_follows_the_store(demo: RunningDemo, browser: Browser) -> None:
    page = await opened(browser, demo)
    await until(page, "document.querySelectorAll('#rows tbody tr').length === 10")
    newest = await until(page, "document.querySelector('#rows tbody tr td:last-child').innerText")
    # A write of the store's own worker arrives, and its row says so by flashing.
    await until(page, f"document.querySelector('#rows tbody tr td:last-child').innerText !== {json.dumps(newest)}")
    await until(page, "document.querySelector('#rows tbody tr.flash')")
    for stage in ("store", "pipeline", "log", "endpoint", "replica", "queries", "clients"):
        assert await until(page, f"{figure(stage)} > 0")
    await until(page, f"{unit('log', 'behind')} >= 0 && {unit('log', 'letters')} === 0")
    await until(page, "document.querySelector('#latency polyline').getAttribute('points').includes(' ')")
    await until(page, "document.querySelector('#throughput polyline').getAttribute('points').includes(' ')")
    assert await errors_of(page) == []


async def test_a_query_that_is_edited_shows_other_rows_and_its_plan(demo: RunningDemo, browser: Browser) -> None:
    page = await opened(browser, demo)
    await page.fill("#query", "issue.where('id', 'IN', [3, 7]).related('comments', c => c.limit(1))")
    await page.click("#query-form button.primary")
    shown = "[...document.querySelectorAll('#rows tbody tr td:first-child')].map(cell => cell.innerText).join()"
    await until(page, f"{shown} === '3,7'")
    await until(
        page, "[...document.querySelectorAll('#rows tbody tr')].every(row => row.innerText.includes('Comment'))"
    )
    await until(page, "document.querySelector('#plan').textContent.includes('comment')")
    await page.fill("#query", "issue.where('colour', 'red')")
    await page.click("#query-form button.primary")
    assert "no column “colour”" in await until(page, "document.querySelector('#query-error').innerText")
    assert await page.evaluate(shown) == "3,7"
    assert await errors_of(page) == []


async def test_an_edit_appears_at_once_and_in_both_panes(demo: RunningDemo, browser: Browser) -> None:
    page = await opened(browser, demo)
    # In one breath, so that no answer can have come in between.
    edit_and_look = """(({client, query}) => {
      client.mutate("issue.setTitle", {id: 1, title: "At once"});
      return client.view(query)[0].title;
    })(demo.panes[0])"""
    assert await page.evaluate(edit_and_look) == "At once"
    await edit(page, "a", 1, "Seen on both sides")
    await until(page, has_title("b", 1, "Seen on both sides"))
    await until(page, f"{words('a')} === 'connected'")
    other = await opened(browser, demo)
    await until(other, has_title("a", 1, "Seen on both sides"))
    assert await errors_of(page) == await errors_of(other) == []


async def test_an_edit_the_server_refuses_is_taken_back_with_the_reason(demo: RunningDemo, browser: Browser) -> None:
    page = await opened(browser, demo)
    before = await page.evaluate(f"document.querySelector({json.dumps(title_field('a', 2))}).value")
    await edit(page, "a", 2, " ")
    await until(page, "document.querySelector('#pane-a .error').textContent.includes('A title cannot be empty')")
    await until(page, has_title("a", 2, before))
    await until(page, f"{words('a')} === 'connected'")
    assert await page.evaluate(has_title("b", 2, before))
    # The queue goes on behind it.
    await edit(page, "a", 2, "A better title")
    await until(page, has_title("b", 2, "A better title"))


async def test_an_offline_edit_survives_a_reload_and_arrives(demo: RunningDemo, browser: Browser) -> None:
    page = await opened(browser, demo)
    await page.click("#pane-a .offline")
    await until(page, f"{words('a')} === 'offline'")
    await edit(page, "a", 3, "Written on a train")
    await until(page, f"{words('a')} === 'offline, 1 edit waiting'")
    await page.reload()
    await until(page, has_title("a", 3, "Written on a train"))
    assert await until(page, words("a")) == "offline, 1 edit waiting"
    await until(page, "demo.panes[1].client.state === 'connected' && demo.panes[1].rows.size")
    assert not await page.evaluate(has_title("b", 3, "Written on a train"))
    await page.click("#pane-a .offline")
    await until(page, has_title("b", 3, "Written on a train"))
    await until(page, f"{words('a')} === 'connected'")
    assert await errors_of(page) == []


async def test_a_pipeline_that_was_stopped_catches_up(demo: RunningDemo, browser: Browser) -> None:
    page = await opened(browser, demo)
    await press_stage(page, "pipeline", "Stop")
    await until(page, "document.querySelector(\"button[data-stage='pipeline']\").textContent === 'Start'")
    await next_picture(page)
    head = await page.evaluate(figure("log"))
    await until(page, f"{unit('store', 'unread')} >= 4")
    assert await page.evaluate(figure("log")) == head
    await press_stage(page, "pipeline", "Start")
    await until(page, f"{figure('log')} > {head}")
    await until(page, f"{unit('store', 'unread')} < 4")
    await until(page, f"{figure('clients')} > {head}")


async def test_an_endpoint_that_was_stopped_catches_up(demo: RunningDemo, browser: Browser) -> None:
    page = await opened(browser, demo)
    await press_stage(page, "endpoint", "Stop")
    await until(page, f"{unit('replica', 'behind')} >= 4")
    head = await page.evaluate(figure("log"))
    await press_stage(page, "endpoint", "Start")
    await until(page, f"{figure('replica')} >= {head}")
    await until(page, f"{figure('clients')} >= {head}")


async def test_clients_outlive_a_cache_and_an_app_server_that_stop(demo: RunningDemo, browser: Browser) -> None:
    page = await opened(browser, demo)
    await press_stage(page, "app", "Stop")
    await press_stage(page, "cache", "Stop")
    await until(page, f"{words('a')} === 'connecting…'")
    await edit(page, "a", 4, "Nobody was there")
    await until(page, f"{words('a')} === 'connecting…, 1 edit waiting'")
    await press_stage(page, "app", "Start")
    await press_stage(page, "cache", "Start")
    await until(page, has_title("b", 4, "Nobody was there"))
    await until(page, f"{words('a')} === 'connected'")


@pytest.mark.parametrize("dark", [False, True])
async def test_the_page_fits_a_phone_and_follows_its_colours(demo: RunningDemo, browser: Browser, dark: bool) -> None:
    page = await opened(browser, demo, Screen(390, 844, dark=dark, mobile=True))
    assert await page.evaluate("document.documentElement.scrollWidth") == 390
    await until(page, "document.querySelectorAll('.stage dd').length > 7")
    assert await page.evaluate(CARDS_THAT_BURST) == []
    channels = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    red, green, blue, *_ = await page.evaluate(channels)
    assert (red + green + blue < 3 * 64) == dark
    # Everything one can press can be reached with Tab alone.
    reached = set()
    for _ in range(60):
        await page.keyboard.press("Tab")
        reached.add(await page.evaluate("[document.activeElement].map(e => e.dataset.stage ?? e.id ?? '')[0]"))
    assert {"pipeline", "endpoint", "cache", "app", "rate", "query"} <= reached


async def test_the_buttons_are_for_the_page_alone(demo: RunningDemo) -> None:
    page = {"X-Changesource-Demo": "1"}
    assert await answer(f"{demo.url}stages/app/stop", {}) == 403
    assert await answer(f"{demo.url}stages/moon/stop", page) == 404
    assert await answer(f"{demo.url}stages/app/explode", page) == 404
    assert await answer(f"{demo.url}writer", page, b'{"perSecond": "many"}') == 400
    assert await answer(f"{demo.url}writer", page, b'{"perSecond": 4}') == 200


async def answer(url: str, headers: dict[str, str], body: bytes = b"{}") -> int:
    """The status of a POST."""

    def post() -> int:
        try:
            with build_opener(ProxyHandler({})).open(Request(url, body, headers)) as response:
                return int(response.status)
        except HTTPError as error:
            return error.code

    return await asyncio.to_thread(post)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("issue.orderBy('modified', 'desc').limit(10)", ISSUES.order_by("modified", "desc").limit(10)),
        ("issue.where('id', '>', 3).where('status', 'open')", ISSUES.where("id", ">", 3).where("status", "open")),
        ("issue.where('id', 'in', [1, 2])", ISSUES.where("id", "IN", [1, 2])),
        (
            "issue.related('comments', c => c.where('author', 'Ada').limit(1))",
            ISSUES.related("comments", lambda c: c.where("author", "Ada").limit(1)),
        ),
        ("issue.whereExists('comments')", ISSUES.where_exists("comments")),
        (
            block("docs/how-to/watch-the-demo.md", "issue.where"),
            ISSUES.where("status", "open")
            .where_exists("comments", lambda c: c.where("author", "Ada"))
            .order_by("modified", "desc")
            .limit(10),
        ),
    ],
)
async def test_a_query_on_the_page_is_what_the_python_builder_makes_of_it(
    demo: RunningDemo, browser: Browser, text: str, query: QueryBuilder
) -> None:
    page = await open_page(browser, demo.url)
    modules = "Promise.all([import('./query-text.js'), import('./tracker.js')])"
    parsed = await page.evaluate(f"{modules}.then(([q, t]) => q.parseQuery({json.dumps(text)}, t.schema))")
    assert parsed == to_json(query.ast)
