"""What is where on the screen: the door in the middle at each width, and on a telephone nothing outside of the screen."""

from collections.abc import Iterator
from typing import Final

import pytest
from bench import day
from dashboard.test_dashboard_chromium import AXE, BROKEN, CHROMIUM, TELEPHONE, TOKEN, chromium, local, served
from dashboard.world import shop, stored_alert, worker_row
from insight.planted import measured
from looking import ask
from playwright.sync_api import Browser, Page, expect

from pgqueue import Limit, PgQueue, chain
from pgqueue.dashboard import Dashboard, on_this_machine
from pgqueue.dashboard.dashboard import NAVIGATION
from pgqueue.dashboard.pages import PAGES

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium; `make test` installs it")
__all__ = ["chromium"]
WIDTHS: Final = (1440, 1024, TELEPHONE)


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    context = chromium.new_context()
    yield context.new_page()
    context.close()


def door(page: Page, address: str, heading: str, *, beside: int = 0) -> None:
    """At each width, light and dark: a card of about 400 pixels in the middle, and axe finds nothing.

    Args:
        page: the window.
        address: which page.
        heading: what the card says.
        beside: pixels that the navigation takes on a wide screen.
    """
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.goto(address)
            card = page.locator(".door")
            expect(card.get_by_role("heading", name=heading)).to_be_visible()
            box = card.bounding_box()
            assert box is not None
            assert box["width"] == pytest.approx(min(400, width - 28), abs=2), (address, width)
            left = beside if width > 760 else 0
            assert box["x"] - left == pytest.approx(width - box["x"] - box["width"], abs=12), (address, width)
            assert outside(page) == [], (address, width)
            page.evaluate(AXE)
            assert page.evaluate(BROKEN, {}) == [], (address, width, scheme)


OUTSIDE: Final = """() => [...document.querySelectorAll(
        'main, nav, a, button, input, select, textarea, summary, label, h1, h2, p, li, dt, dd, th, td, figcaption')].filter(one => {
    const box = one.getBoundingClientRect()
    return box.width && !one.closest('.unseen, .skip, pre, svg') && (box.right > innerWidth + 1 || box.left < -1)
}).map(one => one.outerHTML.slice(0, 200))"""
"""What is to be read or clicked and is outside of the screen, also where one could scroll to it."""


def outside(page: Page) -> list[str]:
    found: list[str] = page.evaluate(OUTSIDE)
    return found


def test_the_login_is_in_the_middle_before_and_after_logging_out(queue: PgQueue, page: Page) -> None:
    with served(Dashboard(queue, token=TOKEN)) as address:
        door(page, f"{address}/dead", "Log in")
        expect(page.get_by_role("link", name="Open the page")).to_have_attribute("href", "/dead")
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_be_visible()
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("button", name="Log out").click()
        door(page, page.url, "Log in")


def test_a_page_that_is_not_there_leads_back_to_the_overview(queue: PgQueue, page: Page) -> None:
    with served(local(queue)) as address:
        door(page, f"{address}/nope", "Not Found", beside=176)
        page.get_by_role("link", name="Back to the overview").click()
        expect(page).to_have_url(f"{address}/overview")


def test_who_may_not_look_and_who_names_another_host_is_told_so_in_the_middle(
    queue: PgQueue, page: Page
) -> None:
    with served(Dashboard(queue, login=lambda _: None)) as address:
        door(page, f"{address}/dead", "Forbidden")
    with served(Dashboard(queue, login=on_this_machine, hosts=["queue.example"])) as address:
        door(page, f"{address}/dead", "Misdirected Request")


NAME: Final = "shop.newsletters.weekly_send_to_everybody_who_has_asked_for_it." + "x" * 90


@pytest.fixture
def shown(queue: PgQueue, dsn: str) -> Iterator[dict[str, str]]:
    """A day of a shop with long names; the address of each page that needs more than its path."""
    with shop(queue) as world:
        day.fill(queue, dsn, jobs=1_000)
        task = queue.task(name=NAME, queue=NAME, limit=Limit(1, name=NAME[:60]))(lambda: None)
        flow = chain(task.call(), task.call(), name=NAME).enqueue()
        queue.control.pause(NAME, why="stock-taking", by=NAME)
        worker_row(queue, host="a-very-long-host-name.of-a-cluster.example.internal", queues=[NAME, "mail"])
        alert = stored_alert(queue)
        ask(
            queue,
            "insert into pgqueue.sink_writes (id, run, task, rows, enqueued, rejected, changed, jobs) "
            "values (gen_random_uuid(), %s, %s, 50, 40, 3, 2, '{[1,40]}')",
            NAME,
            NAME,
        )
        moved = queue.control.jobs(queue="exports").reprioritise(3, by=NAME)
        job = f"/jobs/{world.dead}"
        yield {
            "overview": "/overview?window=24h",
            "task": f"/task?name={day.FAILING_TASK}&window=24h",
            "compare": "/compare?at=9h&window=4h",
            "queue": f"/queue?name={NAME}",
            "jobs": f"/jobs?queue={NAME}",
            "job": job,
            "worker": f"/workers/{queue.workers.list()[0].id}",
            "alert": f"/alert?name={alert}",
            "job-test": "",
            "schedule": f"/schedule?name={day.LATE_SCHEDULE}",
            "workflow": f"/workflows/{flow.id}",
            "run": f"/run?name={NAME}",
            "limit": f"/limit?name={day.LIMIT}",
            "operation": f"/operations/{moved.operation}",
            "a question": f"{job}/retry",
            "a form": f"/alert/silence?name={alert}",
            "a running job": f"/jobs/{world.running}",
            **{f"{state} jobs": f"/jobs?state={state}" for state in ("ready", "running", "scheduled")},
        }


def test_on_a_telephone_nothing_is_outside_of_the_screen(
    queue: PgQueue, shown: dict[str, str], page: Page
) -> None:
    addresses = {one.name: one.path for one in PAGES} | shown
    page.set_viewport_size({"width": TELEPHONE, "height": 800})
    with served(local(queue)) as address:
        for name, path in addresses.items():
            if not path:  # a file
                continue
            answer = page.goto(f"{address}{path}")
            assert answer is not None
            assert answer.status == 200, (name, path, "give its address above")
            assert outside(page) == [], name
            page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
            assert outside(page) == [], (name, "unfolded")


CUT: Final = """() => {
    const pen = document.createElement('canvas').getContext('2d')
    const needs = one => {
        if (one.tagName !== 'INPUT') return one.scrollWidth
        const style = getComputedStyle(one)
        pen.font = `${style.fontSize} ${style.fontFamily}`
        const cross = 18 // that empties the box
        return pen.measureText(one.placeholder).width + parseFloat(style.paddingLeft) + parseFloat(style.paddingRight) + cross
    }
    return [...document.querySelectorAll('.table, .find input')]
        .filter(one => !one.closest('details:not([open])') && needs(one) > one.clientWidth)
        .map(one => one.outerHTML.slice(0, 200))
}"""
"""Tables that have to be scrolled sideways, and boxes whose hint does not fit."""


@pytest.mark.parametrize("width", [1440, 1024])
def test_on_a_wide_screen_no_table_of_a_queue_is_cut_and_the_search_box_says_all(
    queue: PgQueue, dsn: str, page: Page, width: int
) -> None:
    day.fill(queue, dsn, jobs=1_000)
    measured(queue, "shop.imports.sync_customer", 5, succeeded=1_234, failed=567)
    page.set_viewport_size({"width": width, "height": 800})
    with served(local(queue)) as address:
        page.goto(f"{address}/queue?name=mail&window=24h")
        expect(page.get_by_role("link", name="shop.imports.sync_customer")).to_be_visible()
        assert page.evaluate(CUT) == []


def test_on_a_telephone_the_current_page_is_seen_in_the_navigation(queue: PgQueue, page: Page) -> None:
    page.set_viewport_size({"width": TELEPHONE, "height": 800})
    with served(local(queue)) as address:
        for one in NAVIGATION:
            page.goto(f"{address}{one.path}")
            expect(page.locator(".side [aria-current]")).to_be_in_viewport(ratio=1)
