"""What ``pgqueue.enqueue(...)`` and the table itself refuse, in words that name the value and the remedy."""

import json
from typing import Any

import psycopg
import pytest
from store.crowd import ask

from pgqueue.store.jobs import control

Connection = psycopg.Connection[Any]


def _enqueue(connection: Connection, **arguments: Any) -> int:
    given = {"task": "bill"} | arguments
    listed = ", ".join(f"{name} => %({name})s" for name in given)
    row = connection.execute(f"select pgqueue.enqueue({listed})".encode(), given).fetchone()
    assert row is not None
    return int(row[0])


def levels(count: int) -> str:
    """Arguments with this number of levels, the object itself among them."""
    return '{"a":' + "[" * (count - 1) + "]" * (count - 1) + "}"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"task": ""}, "task => '': a name has 1 to 200 characters and at most 249 bytes"),
    ({"queue": ""}, "queue => '': a name has 1 to 200 characters"),
    ({"queue": None}, "queue => NULL: a name has 1 to 200 characters"),
    ({"queue": "q" * 201}, "queue => 'qqq"),
    ({"queue": "列" * 84}, "at most 249 bytes"),
    ({"queue": "q" * 3000, "run_at": "2999-01-01"}, "at most 249 bytes"),
    ({"queue": "two words"}, "queue => 'two words': a name has no white space, comma or colon in it"),
    ({"queue": "two\u2003words"}, "no white space"),
    ({"queue": "mail,bulk"}, "no white space, comma or colon"),
    ({"task": "shop:bill"}, "task => 'shop:bill': a name has no white space, comma or colon"),
    ({"queue": "__HIVE_DEFAULT_PARTITION__"}, "stands for no name in a lake"),
    ({"run_at": "infinity"}, "run_at => 'infinity': use a time in the years 1900 to 8999"),
    ({"run_at": "-infinity"}, "run_at => '-infinity'"),
    ({"run_at": "0044-03-15 BC"}, "use a time in the years 1900 to 8999"),
    ({"run_at": "1899-12-31 23:59:59.999999+00"}, "use a time in the years"),
    ({"run_at": "9000-01-01 00:00+00"}, "use a time in the years"),
    ({"priority": 101}, "priority => 101: use a whole number from -100 to 100"),
    ({"priority": 40_000}, "priority => 40000"),
    ({"max_attempts": 0}, "max_attempts => 0: use a whole number from 1 to 32767"),
    ({"unique_key": ""}, "unique_key => '': use 1 to 1000 characters and at most 2600 bytes"),
    ({"unique_key": "k" * 1001}, "use 1 to 1000 characters"),
    ({"unique_key": "\U0001f511" * 651}, "at most 2600 bytes"),
    ({"args": "[1]"}, "args => '\\[1\\]': use one JSON object"),
    ({"args": None}, "args => NULL: use one JSON object"),
    ({"args": levels(201)}, "args: use at most 200 levels"),
    ({"args": '{"n": ' + "1" * 4301 + "}"}, "whole numbers of at most 4300 digits"),
    ({"args": '{"n": 1e5000}'}, "whole numbers of at most 4300 digits"),
]


@pytest.mark.parametrize(("arguments", "words"), REFUSED)
def test_the_function_refuses_what_is_out_of_bounds(
    connection: Connection, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match=words) as refused:
        _enqueue(connection, **arguments)
    assert len(str(refused.value).splitlines()[0]) < 200


TAKEN: list[dict[str, Any]] = [
    {"task": "t" * 200, "queue": "q" * 200},
    {"queue": "列" * 83},
    {"queue": "mail/2-a.b_c"},
    {"run_at": "1900-01-01 00:00+00"},
    {"run_at": "8999-12-31 23:59:59+00"},
    {"run_at": None},
    {"unique_key": "k" * 1000},
    {"unique_key": "\U0001f511" * 650},
    {"args": levels(200)},
    {"args": json.dumps({"rows": [{"at": [n]} for n in range(500)]})},
    {"args": json.dumps({"text": "[" * 500, "quoted": '"[' * 500})},
    {"args": '{"n": ' + "1" * 4300 + ', "digits": "' + "1" * 9000 + '"}'},
]


@pytest.mark.parametrize("arguments", TAKEN)
def test_what_is_just_within_bounds_is_taken_and_listed(
    connection: Connection, arguments: dict[str, Any]
) -> None:
    job_id = _enqueue(connection, **arguments)

    (job,) = ask(connection, control.newest())
    assert job.id == job_id
    assert (job.task, job.queue) == (arguments.get("task", "bill"), arguments.get("queue", "default"))
    assert job.args == json.loads(arguments.get("args", "{}"))
