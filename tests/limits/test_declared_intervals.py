"""A queue is declared with the time between the starts of its jobs; what exists is kept, replaced, or makes the declaration fail."""

import pytest
from cli.commands import pgqueue
from click.testing import Result
from looking import ask

from pgqueue import Limit, PgQueue, Rate
from pgqueue.errors import InvalidOption, LimitExists, QueueExists


def interval(queue: PgQueue) -> float:
    """Seconds between two starts of the queue's jobs."""
    (one,) = [one for one in queue.insight.limits() if one.name == "queue:devices"]
    assert one.numbers.every is not None
    return one.numbers.every / 1e6


def test_what_exists_is_kept_or_replaced_or_makes_the_declaration_fail(queue: PgQueue) -> None:
    control = queue.control
    control.declare("devices", interval=0.5, priority=3)
    assert control.declare("devices", interval=2, priority=3).priority == 3
    assert interval(queue) == 0.5
    with pytest.raises(LimitExists, match=r"has other numbers: one each 0\.5 s, not one each 2 s"):
        control.declare("devices", interval=2, priority=3, existing="fail")
    control.declare("devices", interval=0.5, priority=3, existing="fail")
    with pytest.raises(QueueExists):
        control.declare("devices", interval=0.5, priority=4, existing="fail")
    control.declare("devices", interval=2, priority=4, existing="replace")
    assert interval(queue) == 2
    control.declare("devices", existing="replace")
    assert interval(queue) == 2, "nothing was said of it"


def test_a_declaration_that_fails_changes_nothing(queue: PgQueue) -> None:
    queue.control.declare("devices", interval=0.5)
    with pytest.raises(LimitExists):
        queue.control.declare("devices", interval=2, priority=9, existing="fail")
    assert ask(queue, "select priority from pgqueue.queues where name = 'devices'") in ([], [(None,)])


@pytest.mark.parametrize("given", [0, -1, "soon"])
def test_an_interval_that_makes_no_sense_is_refused(queue: PgQueue, given: object) -> None:
    with pytest.raises(InvalidOption):
        queue.control.declare("devices", interval=given)  # type: ignore[arg-type]  # it is wrong on purpose


async def test_limits_are_set_in_the_same_three_ways(queue: PgQueue) -> None:
    limits = queue.control.limits
    limits.set("queue:devices", Limit(5), existing="fail")
    assert (await limits.aset("queue:devices", Limit(7), existing="keep")).numbers.most == 5
    with pytest.raises(LimitExists, match="5 at once, not 7 at once"):
        limits.set("queue:devices", Limit(7), existing="fail")
    assert limits.set("queue:devices", Limit(7)).numbers.most == 7
    with pytest.raises(InvalidOption, match="existing"):
        limits.set("queue:devices", Limit(7), existing="reset")  # type: ignore[arg-type]  # there is none


def test_the_first_jobs_of_a_declared_queue_start_one_interval_apart(queue: PgQueue) -> None:
    @queue.task(name="read", queue="devices")
    def read() -> None: ...

    queue.control.declare("devices", interval=3600)
    queue.enqueue_many(read.call() for _ in range(3))
    with queue.take(3, queues=["devices"], timeout=0) as jobs:
        assert len(jobs) == 1
    with queue.take(3, queues=["devices"], timeout=0) as jobs:
        assert not jobs


def test_the_shell_declares_intervals(queue: PgQueue, dsn: str) -> None:
    def run(*words: str) -> Result:
        return pgqueue(*words, dsn=dsn)

    assert run("queues", "set", "devices", "--existing", "keep", "--interval", "0.5").exit_code == 0
    assert interval(queue) == 0.5
    failed = run("queues", "set", "devices", "--existing", "fail", "--interval", "1")
    assert (failed.exit_code, "has other numbers" in failed.stderr) == (2, True)
    alone = run("queues", "set", "devices", "--interval", "1")
    assert "use limits set queue:devices --every" in alone.stderr
    assert run("limits", "set", "queue:devices", "--every", "1", "--existing", "keep").stdout == (
        "queue:devices: one each 0.5 s\n"
    )
    assert run("limits", "set", "queue:devices", "--every", "1").exit_code == 0
    assert interval(queue) == 1
    assert (
        queue.control.limits.set("queue:devices", Rate(every=1), existing="fail").numbers.every == 1_000_000
    )
