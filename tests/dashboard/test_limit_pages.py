"""The pages of limits: what a limit says per key, keys in words, and links to the jobs that run and wait under it."""

from collections.abc import Callable
from urllib.parse import quote

import pytest
from dashboard.people import Person
from looking import ask

from pgqueue import Limit, PgQueue, Rate
from pgqueue.values.limits.limit import LimitNumbers
from pgqueue.values.limits.status import LimitStatus

MakePerson = Callable[..., Person]


def _sync(customer: int) -> None: ...


def _call(token: str) -> None: ...


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (Limit(1, by="customer"), "1 at once per customer"),
        (Limit(1, by=("region", "shop"), ordered=True), "1 at once per region and shop"),
        (Limit(4, name="api"), "4 at once"),
        (Rate("100/minute", by="customer", burst=5), "one each 0.6 s per customer, burst 5"),
    ],
)
def test_a_limit_says_of_what_its_numbers_are(limit: Limit | Rate, said: str) -> None:
    assert limit.numbers.said == said


@pytest.mark.parametrize(
    ("by", "running", "keys", "said"),
    [
        ("customer", 7, 5, "7 running for 5 customers"),
        ("company_id", 1200, 1, "1,200 running for 1 company"),
        ("company_id", 2, 2, "2 running for 2 companies"),
        ("box", 2, 2, "2 running for 2 boxes"),
        ("day", 2, 2, "2 running for 2 days"),
        ("customer", 0, 0, "0 running"),
        ("", 3, 1, "3 running"),
        ("region, shop", 3, 2, "3 running"),
    ],
)
def test_how_many_run_is_said_with_the_number_of_keys(by: str, running: int, keys: int, said: str) -> None:
    declared = f"1 at once by {by}" if by else "1 at once"
    numbers = LimitNumbers(1, None, None, declared)
    assert LimitStatus("x", numbers, None, None, running=running, keys=keys).running_said == said


def test_keys_are_in_words_and_lead_to_their_jobs(queue: PgQueue, person: MakePerson) -> None:
    sync = queue.task(name="shop.sync", limit=Limit(1, by="customer"))(_sync)
    for number in (1, 2, 2, 2):
        sync.enqueue(customer=number)
    with queue.take(2, timeout=5):
        (status,) = queue.insight.limits()
        assert (status.running, status.keys) == (2, 2)
        ann, path = person(), f"/limit?name={quote(status.name)}"
        assert "1 at once per customer, 2 running for 2 customers" in ann.get("/limits").text
        found = ann.get(f"/api{path}").json
        assert found is not None
        assert [(one["key"], one["running"], one["waiting"]) for one in found["keys"]] == [
            ("customer 2", 1, 2),
            ("customer 1", 1, 0),
        ]
        assert {one["lane"] for one in found["holders"]} == {"customer 1", "customer 2"}
        page = ann.get(path).text
        assert '{"customer"' not in page
        listed = ann.get("/api/jobs", query_string={"state": "blocked", **found["keys"][0]["jobs_of"]}).json
        assert listed is not None
        assert [one["args"]["customer"] for one in listed["jobs"]] == [2, 2]


def test_a_hidden_argument_is_in_no_key_and_in_no_link(queue: PgQueue, person: MakePerson) -> None:
    sync = queue.task(name="shop.sync", limit=Limit(1, by="token"))(_call)
    for _ in range(2):
        sync.enqueue(token="hunter22-secret")  # noqa: S106 - a name
    (status,) = queue.insight.limits()
    page = person().get(f"/limit?name={quote(status.name)}").text
    assert "hunter22" not in page
    assert "args=" not in page


def test_a_key_of_a_former_release_is_shown_as_it_is(queue: PgQueue, person: MakePerson) -> None:
    queue.task(name="shop.sync", limit=Limit(1, by="customer"))(_sync).enqueue(customer=1)
    name = "task:shop.sync:customer"
    ask(queue, "update pgqueue.jobs set lane = %s", f"{name} <b>odd</b>")
    page = person().get(f"/limit?name={quote(name)}")
    assert page.status_code == 200
    assert "&lt;b&gt;odd" in page.text
