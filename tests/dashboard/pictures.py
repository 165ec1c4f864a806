"""Takes the pictures of the guide: ``make pictures``. They show a made-up shop, in both themes, and on a telephone."""

import math
import random
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import psycopg
from bench import day
from dashboard.world import shop, worker_row
from playwright.sync_api import sync_playwright
from servers import server
from werkzeug.serving import WSGIRequestHandler, make_server

from pgqueue import PgQueue
from pgqueue.dashboard import Dashboard, on_this_machine
from pgqueue.store.insight import series
from pgqueue.store.schema import schema
from pgqueue.values.insight.series import COUNTS
from pgqueue.values.insight.sketch import count_times

WHERE: Final = Path(__file__).parents[2] / "docs" / "guides" / "dashboard"
LARGEST: Final = 150_000
"""Bytes of a picture."""


class Quiet(WSGIRequestHandler):
    def log_request(self, *_: Any) -> None:
        """Nothing."""


def main() -> None:
    WHERE.mkdir(exist_ok=True)
    with server() as dsn:
        schema.migrate(dsn)
        queue = PgQueue(dsn)
        worker_row(queue)
        worker_row(queue, pid=4712, queues=["mail", "billing"])
        queue.database.run(series.write([*_hour()]))
        _deep(dsn)
        with (
            shop(queue) as world,
            make_server(
                "127.0.0.1",
                0,
                Dashboard(queue, login=on_this_machine, actions=True),
                threaded=True,
                request_handler=Quiet,
            ) as served,
        ):
            threading.Thread(target=served.serve_forever, daemon=True).start()
            _take(
                f"http://127.0.0.1:{served.server_port}",
                {
                    "overview": ("/?window=1h", "light", 1280),
                    "jobs": ("/jobs", "light", 1280),
                    "job": (f"/jobs/{world.dead}", "dark", 1280),
                    "question": ("/dead/retry?task=shop.billing.charge&error=ConnectionError", "light", 1280),
                    "workers": ("/workers", "dark", 1280),
                    "telephone": (f"/jobs/{world.running}", "light", 390),
                },
            )
            served.shutdown()
        queue.close()
    with server() as dsn:
        _trouble(dsn)


def _trouble(dsn: str) -> None:
    """A day in which five things go wrong."""
    schema.migrate(dsn)
    queue = PgQueue(dsn)
    day.fill(queue, dsn, jobs=1_000_000)
    dashboard = Dashboard(queue, login=on_this_machine, actions=True)
    with make_server("127.0.0.1", 0, dashboard, threaded=True, request_handler=Quiet) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        _take(
            f"http://127.0.0.1:{served.server_port}",
            {
                "trouble-overview": ("/overview?window=24h", "light", 1280),
                "trouble-retries": (f"/task?window=24h&name={day.FAILING_TASK}", "light", 1280),
                "trouble-limit": (f"/limit?name={day.LIMIT}", "dark", 1280),
                "trouble-slow": (f"/task?window=24h&name={day.SLOW_TASK}", "dark", 1280),
                "trouble-compare": ("/compare?at=9h&window=2h", "light", 1280),
            },
        )
        served.shutdown()
    queue.close()


def _hour() -> Iterator[dict[str, Any]]:
    """The last hour of the shop: mail as always, and payments that fail and become slow at its end."""
    chance = random.Random(7)  # noqa: S311 - a picture
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    for minute in range(61):
        trouble = max(0.0, (minute - 40) / 20)
        for queue, task, often, lasts, failing in (
            ("mail", "shop.mail.receipt", 400 + 120 * math.sin(minute / 9), 0.08, 0.01),
            (
                "billing",
                "shop.billing.charge",
                90 + 20 * math.cos(minute / 7),
                0.4 + 2 * trouble,
                0.4 * trouble,
            ),
        ):
            started = int(often * chance.uniform(0.9, 1.1))
            failed = int(started * failing)
            waits, runs = dict[int, int](), dict[int, int]()
            count_times(waits, sorted(chance.lognormvariate(-4 + 4 * trouble, 0.7) for _ in range(started)))
            count_times(runs, sorted(lasts * chance.lognormvariate(0, 0.5) for _ in range(started - failed)))
            yield {
                "at": (now - timedelta(minutes=60 - minute)).isoformat(),
                "queue": queue,
                "task": task,
                **dict.fromkeys(COUNTS, 0),
                "enqueued": started,
                "started": started,
                "succeeded": started - failed,
                "failed": failed,
                "retried": failed - failed // 5,
                "dead": failed // 5,
                "wait_bins": [*waits],
                "wait_counts": [*waits.values()],
                "run_bins": [*runs],
                "run_counts": [*runs.values()],
            }


def _deep(dsn: str) -> None:
    """How deep the queues were in that hour: payments wait at its end."""
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    chance = random.Random(7)  # noqa: S311 - a picture
    with psycopg.connect(dsn, autocommit=True) as connection:
        for minute in range(61):
            trouble = max(0.0, (minute - 40) / 20)
            ready = int(chance.uniform(20, 60) + 900 * trouble**2)
            depth = 30, 120, ready, int(chance.uniform(12, 20)), 4, 0.4 + 90 * trouble**2, False
            connection.execute(
                "insert into pgqueue.series_depths values (%s, null, %s, %s, %s, %s, %s, %s, %s)",
                [now - timedelta(minutes=60 - minute), *depth],
            )


def _take(address: str, pictures: dict[str, tuple[str, Any, int]]) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for name, (path, scheme, width) in pictures.items():
            page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 720})
            page.goto(f"{address}{path}")
            page.wait_for_selector(".scripted")
            page.screenshot(path=WHERE / f"{name}.png")
            assert (WHERE / f"{name}.png").stat().st_size < LARGEST, name
        browser.close()


if __name__ == "__main__":
    main()
