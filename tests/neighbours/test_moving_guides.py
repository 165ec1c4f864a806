"""The guides for people who come from elsewhere tell of everything that is refused."""

from collections.abc import Iterable

import pytest
from docs.pages import DOCS, words_in_code

from pgqueue.moving import django_q, procrastinate, rq
from pgqueue.moving.celery import conf, control, result, task
from pgqueue.moving.celery import options as celery

REFUSED: dict[str, Iterable[str]] = {
    "from-celery.md": {
        *celery.TASK_REMEDIES,
        *celery.CALL_REMEDIES,
        *celery.RETRY_REMEDIES,
        *task.REMEDIES,
        *result.REMEDIES,
        *control.REMEDIES,
    },
    "from-rq.md": rq.REMEDIES,
    "from-procrastinate.md": {*procrastinate.TASK_REMEDIES, *procrastinate.JOB_REMEDIES},
    "from-django-q.md": {*django_q.REMEDIES, *django_q.SCHEDULE_REMEDIES},
}
HONOURED: dict[str, Iterable[str]] = {
    "from-celery.md": {
        "countdown=60",
        "priority=9",
        'queue="mail"',
        "acks_late=True",
        "time_limit=30",
        "autoretry_for",
    },
    "from-rq.md": {"at_front=True", "retry=Retry(max=3)"},
    "from-procrastinate.md": {'queueing_lock="k"', "connection=conn", "priority=5", "aliases=[...]"},
    "from-django-q.md": {'cluster="mail"', "ack_failure=True", "ack_failures"},
}


@pytest.mark.parametrize("page", REFUSED)
def test_a_guide_names_every_option_that_is_refused_and_those_that_are_honoured(page: str) -> None:
    words = words_in_code(DOCS / "moving" / page)
    assert {*REFUSED[page], *HONOURED[page]} - words == set()


def test_the_guide_of_celery_has_the_rows_of_the_tables_of_settings() -> None:
    lines = (DOCS / "moving" / "from-celery.md").read_text(encoding="utf-8").splitlines()
    settings = lines[lines.index("## Settings") : lines.index("## What is refused")]
    tables = (sorted(one.items()) for one in (conf.HONOURED, conf.INSTEAD, conf.SAME))
    rows = [f"| `{name}` | {said} |" for table in tables for name, said in table]
    assert [line for line in settings if line.startswith("| `")] == rows
