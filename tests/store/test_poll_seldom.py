"""What a poll finds of the work that seldom comes: it is told when there is some, and only if it is asked."""

from collections.abc import Sequence
from typing import LiteralString

import pytest
from looking import ask

from pgqueue import PgQueue
from pgqueue.store.workers import upkeep

WORKER = """
insert into pgqueue.workers (id, lease_until, host, pid, concurrency, version, idle, looked_at, look_within)
values (gen_random_uuid(), now() + {lease}::interval, 'h', 1, 1, '0', true, now() - {looked}::interval, 25)
"""
ALERT = """
insert into pgqueue.alerts (name, module, rule, task, argument, next_at)
values ('busy', 'ops', '{{}}', 'page', 'alert', now() + {due}::interval)
"""
JOB = """
insert into pgqueue.jobs (queue, task, args, status, run_at, expires_at)
values ('mail', 'send', '{{}}', 'ready', now(), now() + {expires}::interval)
"""


def found(queue: PgQueue, *, asked: bool = True) -> Sequence[str]:
    return queue.database.run(upkeep.poll(seldom=asked)).seldom


@pytest.mark.parametrize(
    ("work", "due", "not_due"),
    [
        ("expire", JOB.format(expires="'-1 s'"), JOB.format(expires="'1 h'")),
        (
            "age",
            "insert into pgqueue.queues (name, ageing) values ('mail', '1 min')",
            "insert into pgqueue.queues (name) values ('mail')",
        ),
        ("alerts", ALERT.format(due="'-1 s'"), ALERT.format(due="'1 h'")),
        (
            "workers",
            WORKER.format(lease="'1 h'", looked="'26 s'"),
            # One has looked in time; of one that is lost, its jobs are reclaimed.
            WORKER.format(lease="'1 h'", looked="'5 s'")
            + ";"
            + WORKER.format(lease="'-1 s'", looked="'1 h'"),
        ),
    ],
)
def test_a_poll_finds_seldom_work_when_it_is_due_and_only_if_asked(
    queue: PgQueue, work: str, due: LiteralString, not_due: LiteralString
) -> None:
    ask(queue, not_due)
    assert found(queue) == ()
    ask(queue, "truncate pgqueue.queues, pgqueue.alerts")
    ask(queue, due)
    assert found(queue) == (work,)
    assert found(queue, asked=False) == ()
