"""The dashboard in a real browser: pages are clicked through, live, accessible, and wide enough for no telephone."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, Final

import pytest
from bench import day
from dashboard.world import World, shop, stored_alert, worker_row
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright
from werkzeug.serving import WSGIRequestHandler, make_server

from pgqueue import PgQueue, chain
from pgqueue.dashboard import LOOPBACK_HOSTS, Dashboard, on_this_machine

CHROMIUM: Final = shutil.which("chromium")
AXE: Final = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
TOKEN: Final = "correct-horse-battery"  # noqa: S105 - a test's own
TELEPHONE: Final = 390
"""Pixels."""
BROKEN: Final = """options => axe.run(document, {resultTypes: ["violations"], ...options})
    .then(found => found.violations.map(one => [one.id, one.nodes[0].html]))"""
REFUSED: Final = (
    "[...document.querySelectorAll('script:not([src]), style, [style], [onclick]')].map(one => one.outerHTML)"
)
"""What the content security policy would refuse."""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium; `make test` installs it")


class Quiet(WSGIRequestHandler):
    def log_request(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@contextmanager
def served(dashboard: Dashboard) -> Iterator[str]:
    """The dashboard on a port of its own."""
    with make_server("127.0.0.1", 0, dashboard, threaded=True, request_handler=Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def opened(browser: Browser, **options: Any) -> Iterator[Page]:
    """A new window; whatever the browser complains of fails the test."""
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(20_000)
    said: list[str] = []
    page.on("console", lambda one: said.append(one.text) if _is_trouble(one) else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    try:
        yield page
    finally:
        context.close()
    assert said == []


def _is_trouble(said: ConsoleMessage) -> bool:
    refused = said.text.startswith("Failed to load resource") and "401" in said.text
    return said.type in {"error", "warning"} and not refused


def local(queue: PgQueue) -> Dashboard:
    return Dashboard(queue, login=on_this_machine, actions=True, hosts=LOOPBACK_HOSTS)


def check(page: Page, address: str) -> None:
    """A page fits a telephone, and passes the rules of axe on a wide screen: all in light, those of colours in dark."""
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": TELEPHONE, "height": 800})
    page.goto(address)
    assert page.evaluate("document.documentElement.scrollWidth") <= TELEPHONE, address
    page.set_viewport_size({"width": 1280, "height": 800})
    page.evaluate(AXE)
    assert page.evaluate(BROKEN, {}) == [], address
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(BROKEN, {"runOnly": ["color-contrast", "link-in-text-block"]}) == [], (
        address,
        "dark",
    )


def paths(world: World) -> list[str]:
    job = f"/jobs/{world.dead}"
    return [
        "/jobs?state=ready&state=dead",
        job,
        f"/jobs/{world.running}",
        "/dead",
        "/workers",
        f"{job}/retry",
        "/dead/purge",
        "/nope",
    ]


def test_each_page_passes_the_rules_of_axe_and_fits_a_telephone(queue: PgQueue, chromium: Browser) -> None:
    worker_row(queue)
    with shop(queue) as world, served(local(queue)) as address:
        context = chromium.new_context()
        page = context.new_page()
        for path in paths(world):
            check(page, f"{address}{path}")
        context.close()


def test_pages_with_figures_pass_the_rules_of_axe_too_and_complain_of_nothing(
    queue: PgQueue, dsn: str, chromium: Browser
) -> None:
    day.fill(queue, dsn, jobs=1_000)
    flow = chain(*(queue.tasks["shop.reports.build"].call() for _ in range(3)), name="monthly").enqueue()
    queue.control.pause("media", why="stock-taking", by="ann")
    alert = stored_alert(queue)
    with served(local(queue)) as address, opened(chromium) as page:
        for path in (
            "/overview?window=24h",
            f"/task?name={day.FAILING_TASK}&window=24h",
            "/compare?at=9h&window=4h",
            "/queues",
            "/queue?name=mail&window=24h",
            "/schedules",
            "/alerts",
            f"/alert/silence?name={alert}",
            f"/schedule?name={day.LATE_SCHEDULE}",
            "/workflows",
            f"/workflows/{flow.id}",
            "/limits",
            f"/limit?name={day.LIMIT}",
            "/audit",
            "/store",
        ):
            check(page, f"{address}{path}")
            refused = page.evaluate(REFUSED)
            assert refused == [], path


def test_a_window_and_figures_are_chosen_with_the_keyboard(
    queue: PgQueue, dsn: str, chromium: Browser
) -> None:
    day.fill(queue, dsn, jobs=1_000)
    with served(local(queue)) as address, opened(chromium) as page:
        page.goto(f"{address}/overview")
        page.get_by_role("link", name="6h", exact=True).focus()
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_role("link", name="24h", exact=True)).to_have_attribute("aria-current", "true")
        table = page.get_by_role("region", name="Attempts that ended, in each 30 min")
        page.locator("#figures-ended summary").focus()
        page.keyboard.press("Enter")
        expect(table).to_be_visible()
        page.keyboard.press("Tab")
        expect(table).to_be_focused()


@pytest.mark.parametrize("scripts", [True, False], ids=["with-javascript", "without"])
def test_a_job_is_found_opened_and_cancelled_by_clicks(
    queue: PgQueue, chromium: Browser, *, scripts: bool
) -> None:
    with (
        shop(queue) as world,
        served(local(queue)) as address,
        opened(chromium, java_script_enabled=scripts) as page,
    ):
        page.goto(address)
        page.get_by_role("link", name="Jobs", exact=True).click()
        page.get_by_label("Task").fill("shop.search.reindex")
        page.get_by_role("button", name="Filter").click()
        page.get_by_role("link", name=str(world.ready), exact=True).click()
        expect(page.get_by_role("heading", name=f"Job {world.ready} ready")).to_be_visible()
        page.get_by_role("link", name="Cancel…").click()
        page.get_by_role("link", name="Keep as it is").click()
        page.get_by_role("link", name="Cancel…").click()
        page.get_by_role("button", name="Cancel").click()
        expect(page.get_by_role("status")).to_have_text("1 job cancelled.")
        assert queue.job(world.ready).state == "cancelled"


def test_dead_jobs_are_retried_by_their_error_by_clicks(queue: PgQueue, chromium: Browser) -> None:
    with shop(queue), served(local(queue)) as address, opened(chromium) as page:
        page.goto(f"{address}/dead")
        page.get_by_role("row", name="ConnectionError").first.get_by_role("link", name="Retry…").click()
        expect(page.get_by_role("heading", name="Retry 6 jobs?")).to_be_visible()
        page.get_by_role("button", name="Retry").click()
        expect(page.get_by_role("status")).to_have_text("6 jobs ready again.")


def test_an_alert_is_silenced_and_told_again_by_clicks(queue: PgQueue, chromium: Browser) -> None:
    stored_alert(queue)
    with served(local(queue)) as address, opened(chromium) as page:
        page.goto(f"{address}/alerts")
        page.get_by_role("link", name="Silence…").click()
        page.get_by_label("For").fill("2h")
        page.get_by_role("button", name="Silence").click()
        expect(page.get_by_role("status")).to_contain_text("Alert slow mail is silenced until")
        assert queue.alerts.list()[0].silenced_until
        page.get_by_role("link", name="Tell again…").click()
        page.get_by_role("button", name="Tell again").click()
        expect(page.get_by_role("status")).to_have_text("The task of alert slow mail is told again.")
        assert queue.alerts.list()[0].silenced_until is None


def test_a_page_shows_what_happens_without_being_reloaded(queue: PgQueue, chromium: Browser) -> None:
    sell = queue.task(name="shop.sell")(lambda: None)
    job = sell.enqueue()
    with served(local(queue)) as address, opened(chromium) as page:
        page.clock.install()
        page.goto(f"{address}/jobs/{job.id}")
        page.get_by_role("link", name="Cancel…").focus()
        expect(page.get_by_role("button", name="Live")).to_be_visible()
        queue.control.jobs(ids=[job.id]).cancel(by="bob")
        page.clock.run_for(4_000)
        expect(page.get_by_role("heading", name=f"Job {job.id} cancelled")).to_be_visible()

        page.get_by_role("button", name="Live").click()
        expect(page.get_by_role("button", name="Paused")).to_have_attribute("aria-pressed", "false")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.clock.run_for(60_000)
        assert asked == []


def test_a_hidden_page_asks_nothing_until_it_is_shown(queue: PgQueue, chromium: Browser) -> None:
    asked: list[str] = []
    with served(local(queue)) as address, opened(chromium) as page:
        page.clock.install()
        page.on("request", lambda one: asked.append(one.url) if "x-pgqueue-live" in one.headers else None)
        page.add_init_script(
            "isHidden = true; Object.defineProperty(document, 'hidden', {get: () => isHidden})"
        )
        page.goto(f"{address}/jobs")
        page.clock.run_for(60_000)
        assert asked == []
        with page.expect_request(lambda one: "x-pgqueue-live" in one.headers):
            page.evaluate("isHidden = false; document.dispatchEvent(new Event('visibilitychange'))")


def test_a_token_is_typed_once(queue: PgQueue, chromium: Browser) -> None:
    with served(Dashboard(queue, token=TOKEN)) as address, opened(chromium) as page:
        with page.expect_response(f"{address}/dead") as answer:
            page.goto(f"{address}/dead")
        assert answer.value.status == 401
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_label("Your name").fill("ann")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", name="Dead jobs")).to_be_visible()
        expect(page.get_by_text("ann")).to_be_visible()
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("Token")).to_be_visible()
