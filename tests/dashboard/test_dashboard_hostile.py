"""Hostile values at the doors of the dashboard: every page, its JSON, every form; each is answered, and none reaches the database or the log."""

import logging
import re
from collections.abc import Callable, Sequence
from urllib.parse import quote

import pytest
from dashboard.people import ORIGIN, Person, key_in

from pgqueue import PgQueue
from pgqueue.dashboard.pages import ACTIONS, PAGES

PARAMETERS = (
    "name",
    "state",
    "queue",
    "task",
    "key",
    "args",
    "after",
    "error",
    "died",
    "below",
    "by",
    "to",
    "n",
    "db",
)
MARKUP = "<script>alert(1)</script>"
HOSTILE = {
    "nul": "a\0b",
    "quotes": "'\"\\;--%s{0}",
    "markup": MARKUP,
    "int64": "9223372036854775808",
    "digits": "9" * 400,
    "superscript": "²",
    "float": "1e400",
    "nan": "NaN",
    "deep": '{"a":' * 1_600,
}


def _addresses(job: int, paths: Sequence[str]) -> list[str]:
    return [re.sub(r"<\w+>", "a%00b", re.sub(r"<int:\w+>", str(job), path)) for path in paths]


@pytest.mark.parametrize("which", HOSTILE)
def test_no_parameter_of_a_page_is_a_fault(
    queue: PgQueue, person: Callable[..., Person], caplog: pytest.LogCaptureFixture, which: str
) -> None:
    task = queue.task(name="t'\"<b>")(lambda x: x)
    job = task.using(queue=f"q{MARKUP}", unique_key=f"k{MARKUP}").enqueue(MARKUP).id
    someone, value = person(), quote(HOSTILE[which])
    caplog.set_level(logging.WARNING)
    names = PARAMETERS if which == "nul" else ("args", "below", "task", "name")
    for path in _addresses(job, [page.path for page in PAGES]):
        alone = [f"{name}={value}" for name in names]
        for address in (
            *(f"/api{path}?{query}" for query in alone),
            f"{path}?{'&'.join(alone)}",
            f"{path}?name=q",
        ):
            answer = someone.get(address)
            assert answer.status_code < 500, address
            assert answer.mimetype != "text/html" or MARKUP not in answer.text, address
            if which == "nul" and address.startswith("/api"):
                assert answer.status_code in {400, 404}, address
                assert "leave the character NUL out" in answer.text or "db=" in address, address
    assert caplog.records == []


def test_no_field_of_a_form_is_a_fault(
    queue: PgQueue, person: Callable[..., Person], caplog: pytest.LogCaptureFixture
) -> None:
    job = queue.task(name="t")(lambda x: x).enqueue(MARKUP).id
    someone = person()
    key = key_in(someone.get(f"/jobs/{job}/cancel"))
    caplog.set_level(logging.WARNING)
    for path in _addresses(job, [action.path for action in ACTIONS]):
        for value in HOSTILE.values():
            fields = dict.fromkeys(
                (*PARAMETERS, "why", "most", "weight", "share", "priority", "count", "sure"), value
            )
            answer = someone.client.post(
                f"{path}?name=x", data={"pgqueue_csrf": key, **fields}, headers=ORIGIN
            )
            assert answer.status_code < 500, (path, value)
    assert caplog.records == []


def test_a_number_beyond_64_bits_is_refused_by_name(person: Callable[..., Person]) -> None:
    answer = person().get("/api/audit?below=9223372036854775808")
    assert answer.status_code == 400
    assert "give a whole number of 64 bits" in answer.text


def test_a_priority_is_taken_as_it_was_typed_or_refused(
    queue: PgQueue, person: Callable[..., Person]
) -> None:
    job = queue.task(name="t")(lambda x: x).enqueue(1)
    for typed in ("00000000010000", "1e1", "5 000", "101"):
        answer = person().do("/jobs/reprioritise?queue=default", priority=typed)
        assert "give a whole number" in answer.text or "use a whole number" in answer.text
        assert queue.job(job.id).priority == 0
