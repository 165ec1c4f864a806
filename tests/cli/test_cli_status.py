"""``pgqueue status`` answers "is it all right?" in the words of ``queue.insight.health()``."""

import json

import pytest
from cli.commands import pgqueue
from insight.planted import enqueue, whole, worker

from pgqueue import PgQueue


def test_it_says_that_all_is_right(queue: PgQueue, dsn: str) -> None:
    worker(queue)
    said = pgqueue("status", dsn=dsn)
    assert (said.output, said.exit_code) == ("All right: 1 worker serves 0 queues, no job is ready.\n", 0)


@pytest.mark.parametrize("name", ["mail", "m\x1bail"])
def test_a_critical_problem_is_printed_with_its_command_and_ends_with_1(
    queue: PgQueue, dsn: str, name: str
) -> None:
    worker(queue, "sms")
    enqueue(queue, "mail", minutes=10)
    queue.control.pause("archive", by=f"ann {name!r}"[:20], why=name)
    said = pgqueue("status", dsn=dsn)
    first, command, paused, resume = whole(said.output).splitlines()
    assert first == "critical: No worker serves mail: 1 job waits, the oldest for 10 min."
    assert command == "  pgqueue worker --queues mail"
    assert paused.startswith("info: Queue archive has been paused for ")
    assert resume == "  pgqueue queues resume archive"
    assert "\x1b" not in said.output
    assert said.exit_code == 1


def test_it_prints_the_value_as_json(queue: PgQueue, dsn: str) -> None:
    enqueue(queue, "mail")
    found = json.loads(pgqueue("status", "--json", dsn=dsn).output)
    (problem,) = found["problems"]
    assert (found["well"], found["workers"], problem["kind"], problem["jobs"]) == (False, 0, "no worker", 1)
