"""A person at the dashboard without a browser, and jobs in each state for them to look at."""

import re
from collections.abc import Sequence
from typing import Any, Final

from looking import ask
from werkzeug.test import Client, TestResponse

from pgqueue import PgQueue
from pgqueue.dashboard import Dashboard

ORIGIN: Final = {"Origin": "http://localhost"}
_KEY = re.compile(r'name="pgqueue_csrf" value="([0-9a-f]{32})"')


class Person:
    """Opens pages, and sends the forms that are on them."""

    def __init__(self, dashboard: Dashboard) -> None:
        self.dashboard = dashboard
        self.client = Client(dashboard)

    def get(self, path: str, **options: Any) -> TestResponse:
        return self.client.get(path, **options)

    def do(self, path: str, **fields: str) -> TestResponse:
        """Open the page of an action, send its form, and follow to the page behind it."""
        asked = self.get(path)
        assert asked.status_code == 200, asked.text
        return self.client.post(
            path, data={"pgqueue_csrf": key_in(asked), **fields}, headers=ORIGIN, follow_redirects=True
        )


def key_in(page: TestResponse) -> str:
    found = _KEY.search(page.text)
    assert found is not None, page.text
    return found[1]


def key_of(page: TestResponse) -> str:
    """The same, of a page without a form: the cookie that came with it."""
    return page.headers["Set-Cookie"].partition("pgqueue_csrf=")[2].partition(";")[0]


def die(queue: PgQueue, task: str, *all_args: dict[str, Any], error: Exception) -> Sequence[int]:
    """Jobs of a task that died of an error; their ids."""

    def fail(**_: Any) -> None: ...

    made = queue.tasks.get(task) or queue.task(name=task, max_attempts=1)(fail)
    ids = [made.enqueue(**args).id for args in all_args]
    for _ in ids:
        with queue.take(1, timeout=5) as jobs:
            jobs[0].fail(error)
    return ids


def rows_of(queue: PgQueue) -> dict[str, list[tuple[Any, ...]]]:
    found = ask(queue, "select tablename from pg_tables where schemaname = 'pgqueue' order by 1")
    return {
        name: ask(queue, f'select one::text from pgqueue."{name}" as one order by 1') for (name,) in found
    }
