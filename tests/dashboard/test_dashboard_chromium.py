"""The dashboard in a real browser: pages are clicked through, live, accessible, and wide enough for no telephone."""

import json
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, Final

import pytest
from bench import day
from dashboard.people import die
from dashboard.world import World, shop, stored_alert, worker_row
from looking import ask
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright
from werkzeug.serving import WSGIRequestHandler, make_server

from pgqueue import PgQueue, Workflow, chain, group
from pgqueue.dashboard import LOOPBACK_HOSTS, Dashboard, on_this_machine

CHROMIUM: Final = shutil.which("chromium")
AXE: Final = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
TOKEN: Final = "correct-horse-battery"  # noqa: S105 - a test's own
TELEPHONE: Final = 390
WIDTHS: Final = (TELEPHONE, 1024, 1440)
"""Pixels."""
BROKEN: Final = """options => axe.run(document, {resultTypes: ["violations"], ...options})
    .then(found => found.violations.map(one => [one.id, one.nodes[0].html]))"""
REFUSED: Final = (
    "[...document.querySelectorAll('script:not([src]), style, [style], [onclick]')].map(one => one.outerHTML)"
)
"""What the content security policy would refuse."""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium; `make test` installs it")


class Quiet(WSGIRequestHandler):
    timeout = 3.0
    """Seconds. A browser may open a connection that it does not use."""

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
        # So that it waits for requests: one that comes late would open the pool of the queue again.
        server.daemon_threads = False  # type: ignore[attr-defined]  # of the threaded server
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
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (address, width)
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


def test_the_story_of_a_job_with_its_log_and_its_actions_passes_the_rules_of_axe(
    queue: PgQueue, chromium: Browser
) -> None:
    worker_row(queue)
    line = [0.0, "WARNING", "shop", "a long line " * 40]
    log = json.dumps({"attempt": 1, "left_out": 7, "lines": [line, [0.0, "INFO", "shop", "x" * 300], line]})
    with shop(queue) as world, served(local(queue)) as address, opened(chromium) as page:
        for job in (world.dead, world.running):
            ask(
                queue,
                "insert into pgqueue.notes (job_id, kind, name, value) values (%s, 'log', '1', %s)",
                job,
                log,
            )
            check(page, f"{address}/jobs/{job}")
        assert page.evaluate("document.querySelectorAll('.log').length") == 1
        for path in (
            f"/jobs/{world.scheduled}",
            f"/jobs/{world.scheduled}/change",
            f"/jobs/{world.dead}/copy",
        ):
            check(page, f"{address}{path}")


def test_pages_with_figures_pass_the_rules_of_axe_too_and_complain_of_nothing(
    queue: PgQueue, dsn: str, chromium: Browser
) -> None:
    day.fill(queue, dsn, jobs=1_000)
    flow = chain(*(queue.tasks["shop.reports.build"].call() for _ in range(3)), name="monthly").enqueue()
    queue.control.pause("media", why="stock-taking", by="ann")
    alert = stored_alert(queue)
    queue.alerts.silence(alert, 3_600, by="ann")
    queue.schedules.fire(day.LATE_SCHEDULE)
    crowd = group([queue.tasks["shop.reports.build"].call() for _ in range(30)], name="thirty").enqueue()
    many = Workflow("fan")
    many.add("start", queue.tasks["shop.reports.build"].call())
    for number in range(40):
        many.add(f"part-{number}", queue.tasks["shop.reports.build"].call(), after="start")
    fan = many.enqueue()
    unfolded = queue.flows.get(fan.id).nodes[2].id
    with served(local(queue)) as address, opened(chromium) as page:
        for path in (
            "/overview?window=24h",
            "/overview?window=10m",
            "/tasks?window=24h",
            f"/task?name={day.FAILING_TASK}&window=24h",
            "/compare?at=9h&window=4h",
            "/queues",
            "/queue?name=mail&window=24h",
            "/schedules",
            "/alerts",
            f"/alert?name={alert}",
            f"/alert/silence?name={alert}",
            "/schedules/add",
            "/queue/set?name=mail",
            f"/workflows/{crowd.id}",
            f"/workflows/{fan.id}?open={unfolded}",
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
        page.get_by_label("An id or terms").fill("task:shop.search.reindex")
        page.get_by_role("button", name="Find").click()
        page.get_by_role("link", name=str(world.ready), exact=True).click()
        expect(page.get_by_role("heading", name=f"Job {world.ready} ready")).to_be_visible()
        page.get_by_role("link", name="Cancel…").click()
        page.get_by_role("link", name="Back").click()
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


def test_an_alert_is_silenced_and_its_silence_ended_by_clicks(queue: PgQueue, chromium: Browser) -> None:
    stored_alert(queue)
    with served(local(queue)) as address, opened(chromium) as page:
        page.goto(f"{address}/alerts")
        page.get_by_role("link", name="Silence…").click()
        page.get_by_label("For", exact=False).first.fill("2h")
        page.get_by_role("button", name="Silence").click()
        expect(page.get_by_role("status")).to_contain_text("Alert slow mail is silenced until")
        assert queue.alerts.list()[0].silenced_until
        page.get_by_role("link", name="End silence…").click()
        page.get_by_role("button", name="End silence").click()
        expect(page.get_by_role("status")).to_have_text("Alert slow mail is not silenced any more.")
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


def test_a_page_says_within_five_seconds_that_the_database_does_not_answer_and_when_it_was_read(
    queue: PgQueue, chromium: Browser
) -> None:
    """The overview is read again after half a minute; whether the database answers is asked every two seconds."""
    worker_row(queue)
    with served(local(queue)) as address, opened(chromium) as page:
        page.goto(f"{address}/overview?window=1h")
        expect(page.locator("#read")).to_have_text(re.compile(r"read (now|1 s ago)"))
        page.route("**/*", lambda _: None)  # nothing is answered any more
        page.wait_for_timeout(1_000)
        expect(page.locator("#away")).to_have_text(
            re.compile(r"^The database does not answer; figures of \d\d:\d\d:\d\d\.$"), timeout=5_500
        )
        expect(page.get_by_role("button", name="No answer")).to_be_visible()
        queue.control.pause("mail", why="stock-taking", by="ann")
        page.unroute("**/*")
        expect(page.locator("#away")).to_be_hidden(timeout=8_000)
        expect(page.get_by_text("has been paused")).to_be_visible()
        expect(page.get_by_role("button", name="Live")).to_be_visible()


def test_the_counts_in_the_navigation_change_while_a_page_is_open(queue: PgQueue, chromium: Browser) -> None:
    worker_row(queue)
    with served(local(queue)) as address, opened(chromium) as page:
        page.clock.install()
        page.goto(f"{address}/jobs")
        dead = page.locator("[data-count=dead]")
        expect(dead).to_be_hidden()
        die(queue, "buy", {"order": 7}, {"order": 8}, error=ValueError("no stock"))
        page.clock.run_for(2_500)
        expect(dead).to_have_text("2")


@pytest.mark.parametrize("width", [1440, 1024, TELEPHONE])
def test_the_labels_of_charts_have_one_size_at_every_width_and_no_card_stands_alone(
    queue: PgQueue, dsn: str, chromium: Browser, width: int
) -> None:
    day.fill(queue, dsn, jobs=1_000)
    with served(local(queue)) as address, opened(chromium, viewport={"width": width, "height": 900}) as page:
        page.goto(f"{address}/overview?window=24h")
        heights = page.evaluate(
            "[...document.querySelectorAll('.chart text')].map(one => parseFloat(getComputedStyle(one).fontSize) "
            "* one.ownerSVGElement.getBoundingClientRect().width / 440)"
        )
        assert 9.5 < min(heights) <= max(heights) < 13.5
        rows = page.evaluate(
            "[...document.querySelectorAll('.cards > div')].map(one => Math.round(one.getBoundingClientRect().top))"
        )
        assert {rows.count(top) for top in rows} in ({8}, {4}, {2})


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


def test_new_jobs_are_counted_and_the_rows_stay_with_their_boxes_and_the_focus(
    queue: PgQueue, chromium: Browser
) -> None:
    sell = queue.task(name="shop.sell")(lambda: None)
    queue.enqueue_many(sell.call() for _ in range(3))
    with served(local(queue)) as address, opened(chromium) as page:
        page.clock.install()
        page.goto(f"{address}/jobs")
        page.get_by_label("Job 2", exact=True).check()
        page.get_by_role("link", name="3", exact=True).focus()
        where = page.get_by_role("link", name="3", exact=True).bounding_box()
        queue.enqueue_many(sell.call() for _ in range(12))
        queue.control.jobs(ids=[1]).cancel()
        page.clock.run_for(6_000)
        expect(page.get_by_role("link", name="12 new jobs")).to_be_visible()
        expect(page.get_by_role("row", name="shop.sell")).to_have_count(3)
        expect(page.get_by_role("row", name="cancelled")).to_have_count(1)
        assert page.get_by_role("link", name="3", exact=True).bounding_box() == where
        expect(page.get_by_role("link", name="3", exact=True)).to_be_focused()
        expect(page.get_by_label("Job 2", exact=True)).to_be_checked()
        page.get_by_role("link", name="12 new jobs").click()
        expect(page.get_by_role("row", name="shop.sell")).to_have_count(15)


def test_all_jobs_of_a_page_are_chosen_with_one_box(queue: PgQueue, chromium: Browser) -> None:
    with shop(queue), served(local(queue)) as address, opened(chromium) as page:
        page.goto(f"{address}/dead?queue=billing")
        chosen = page.get_by_role("group", name="With the chosen jobs")
        expect(chosen).to_be_hidden()
        page.get_by_label("All on this page").check()
        page.get_by_label("Job 3", exact=True).uncheck()
        assert page.evaluate("document.getElementById('pick-all').indeterminate")
        chosen.get_by_role("button", name="Retry…").click()
        expect(page.get_by_role("heading", name="Retry 7 jobs?")).to_be_visible()
        page.get_by_role("button", name="Retry").click()
        expect(page.get_by_role("status")).to_have_text("7 jobs ready again.")
        expect(page).to_have_url(f"{address}/dead?queue=billing")


def test_jobs_are_chosen_without_javascript(queue: PgQueue, chromium: Browser) -> None:
    with (
        shop(queue) as world,
        served(local(queue)) as address,
        opened(chromium, java_script_enabled=False) as page,
    ):
        page.goto(f"{address}/jobs?state=scheduled")
        expect(page.get_by_label("All on this page")).to_be_hidden()
        page.get_by_label(f"Job {world.scheduled}", exact=True).check()
        page.get_by_role("group", name="With the chosen jobs").get_by_role("button", name="Run now…").click()
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_text("1 job ready.")).to_be_visible()
        assert queue.job(world.scheduled).state == "ready"


def test_a_row_has_two_lines_at_most_at_1024_pixels(queue: PgQueue, chromium: Browser) -> None:
    task = queue.task(
        name="shop.a_long_module.of_some_package.a_long_name_of_a_task", queue="a-long-name-of-a-queue"
    )(lambda **_: None)
    for _ in range(3):
        task.enqueue(**{f"argument_{number}": "a long value" * 5 for number in range(5)})
    error = '[{"attempt": 1, "type": "builtins.ConnectionRefusedError", "message": "%s"}]' % (
        "it is far away " * 20
    )
    ask(queue, "update pgqueue.jobs set errors = %s::jsonb where id = 2", error)
    with served(local(queue)) as address, opened(chromium, viewport={"width": 1024, "height": 800}) as page:
        for state in ("", "?state=ready", "?state=running"):
            page.goto(f"{address}/jobs{state}")
            for row in page.locator("table.jobs tbody tr").all():
                box = row.bounding_box()
                assert box is not None
                assert box["height"] < 60, state
            assert page.evaluate(
                "(t => t.scrollWidth <= t.clientWidth)(document.querySelector('[data-list]'))"
            ), state


def test_lists_with_what_is_wrong_and_hundreds_of_rows_pass_the_rules_of_axe(
    queue: PgQueue, chromium: Browser
) -> None:
    for number in range(20):
        worker_row(queue, pid=number)
    with shop(queue) as world, served(local(queue)) as address, opened(chromium) as page:
        for path in (
            "/jobs?state=running",
            "/jobs?state=scheduled",
            "/jobs?state=succeeded",
            "/workers",
            "/queues?sort=ready",
            f"/dead/retry?id={world.dead}&chosen=1",
            "/jobs/cancel",
        ):
            check(page, f"{address}{path}")
            refused = page.evaluate(REFUSED)
            assert refused == [], path
        context = chromium.new_context()
        check(context.new_page(), f"{address}/jobs?q=taks:x")  # it answers 400, of which the console tells
        context.close()
