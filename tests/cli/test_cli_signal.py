"""``pgqueue signal``."""

import json
from typing import Any

import pytest
from cli.commands import pgqueue
from click.testing import Result
from looking import ask

from pgqueue import PgQueue


def signal(dsn: str, *words: str) -> Result:
    return pgqueue("signal", *words, dsn=dsn)


def _sent(queue: PgQueue) -> list[Any]:
    return ask(queue, "select target, name, payload::text from pgqueue.signals order by target")


def test_a_signal_is_sent_to_a_job_or_a_key_without_an_app(dsn: str, queue: PgQueue) -> None:
    @queue.task(name="wait")
    def wait() -> None: ...

    job = wait.enqueue().id
    assert signal(dsn, f"{job}", "approved", '{"by": "Ann"}').stdout == f"signal approved sent to {job}\n"
    assert signal(dsn, "key:order:42", "paid").stdout == "signal paid sent to key:order:42\n"
    again = signal(dsn, f"job:{job}", "approved", "2")
    assert (again.exit_code, again.stdout) == (
        0,
        f"job:{job} has signal approved already; its payload stays as it is\n",
    )
    ((one, _, payload), (key, name, nothing)) = _sent(queue)
    assert (one, json.loads(payload)) == (f"job:{job}", {"by": "Ann"})
    assert (key, name, nothing) == ("key:order:42", "paid", None)


def test_the_audit_names_the_sender_that_the_command_names(dsn: str, queue: PgQueue) -> None:
    signal(dsn, "key:order:42", "paid")
    signal(dsn, "key:order:43", "paid", "--by", "ann")
    assert [(one.action, one.target, one.by) for one in queue.insight.audit()] == [
        ("signal", "key order:43", "ann")
    ]


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["7", "approved"], "signal 'approved' to 7: the job has ended, or never was"),
        (["order:42", "approved"], "TARGET 'order:42': give a job's id, key:TEXT or flow:ID"),
        (["flow:77", "approved"], "the job has ended, or never was"),
        (["flow:x", "approved"], "TARGET 'flow:x': give a job's id, key:TEXT or flow:ID"),
        (["key:", "approved"], "key='': use a string of 1 to 296 characters"),
        (["0", "approved"], "signal(0): give the handle of a job or a flow, a job's id, or a key"),
        (["7", "not one name"], "a name has no white space, comma or colon in it"),
        (["key:k", "approved", "yes"], "'yes' is no JSON"),
        (["key:k", "approved", '"\\u0000"'], "a string holds NUL"),
        (["key:k", "approved", "[" * 300 + "]" * 300], "more than 200 levels"),
        (["key:k", "approved", "[" * 100_000], "is no JSON"),
    ],
)
def test_what_cannot_be_sent_is_refused_in_one_line(
    dsn: str, queue: PgQueue, words: list[str], refusal: str
) -> None:
    result = signal(dsn, *words)
    assert result.exit_code == 2
    assert refusal in " ".join(result.stderr.split())
    assert _sent(queue) == []
