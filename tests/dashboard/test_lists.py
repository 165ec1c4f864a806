"""Lists one can work in: columns by state, counts, the box, check boxes, rows that stay, numbers to type; queues and workers by hundreds."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from dashboard.people import ORIGIN, Person, die, key_in
from dashboard.world import World, shop, worker_row
from looking import ask, wait_until
from werkzeug.test import TestResponse

from pgqueue import Limit, PgQueue
from pgqueue.dashboard import Right
from pgqueue.dashboard.job_lists import LIST
from pgqueue.dashboard.page import LIVE
from pgqueue.dashboard.pages import jobs, many_jobs
from pgqueue.store.bulk import bulk, bulk_jobs
from pgqueue.store.insight import searching

MakePerson = Callable[..., Person]
JOB = re.compile(r'<a class="id" href="/jobs/(\d+)">')


@pytest.fixture
def world(queue: PgQueue) -> Iterator[World]:
    with shop(queue) as made:
        yield made


def shown(page: TestResponse) -> list[int]:
    """The jobs of a list, in its order."""
    table = page.text.partition("data-list=")[2]
    return [int(one) for one in JOB.findall(table)]


def heads(page: TestResponse) -> list[str]:
    table = page.text.partition("data-list=")[2]
    return re.findall(r'<th scope="col"[^>]*>([^<]+)', table)


def plain(page: TestResponse) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page.text).split())


def _sell(order_id: int = 0) -> None: ...


# Columns and counts


@pytest.mark.parametrize(
    ("state", "columns"),
    [
        ("succeeded", ["Ended", "Waited", "Ran"]),
        ("running", ["Running for", "Worker", "Progress"]),
        ("scheduled", ["Due", "Do"]),
        ("ready", ["Waiting for"]),
        ("blocked", ["Blocked by", "Since"]),
        ("dead", ["Died", "Do"]),
    ],
)
def test_a_list_of_one_state_has_the_columns_of_that_state(
    queue: PgQueue, world: World, person: MakePerson, state: str, columns: list[str]
) -> None:
    ask(queue, "update pgqueue.jobs set status = 'blocked' where id = %s", world.ready)
    assert heads(person().get(f"/jobs?state={state}"))[-len(columns) :] == columns


def test_a_list_tells_how_long_jobs_waited_and_ran(queue: PgQueue, world: World, person: MakePerson) -> None:
    ask(
        queue,
        "update pgqueue.job_history set run_at = finished_at - interval '12 s', started_at = finished_at - interval '2 s'"
        " where id = %s",
        world.succeeded,
    )
    assert re.search(r"10 s\s+2 s", plain(person().get("/jobs?q=state:succeeded")))


def test_running_jobs_show_their_worker_as_a_link_and_their_progress(
    queue: PgQueue, world: World, person: MakePerson
) -> None:
    worker = queue.insight.running().jobs[0]
    page = person().get("/jobs?state=running")
    assert f'<a href="/workers/{worker.worker_id}">{worker.worker}</a>' in page.text
    assert f'<progress value="0.25" max="1" aria-label="Progress of job {world.running}">' in page.text
    assert "3 of 12" in plain(page)
    detail = json.loads(person().get("/api/jobs?state=running").text)["live"][str(world.running)]
    assert detail["progress"]["message"] == "3 of 12 pages rendered"
    assert person().get(f"/workers/{worker.worker_id}").status_code == 200
    assert person().get("/workers/nobody").status_code == 404


def test_a_message_of_progress_has_no_secrets(queue: PgQueue, person: MakePerson) -> None:
    queue.task(name="sell")(_sell).enqueue(1)
    with queue.take(1, timeout=5) as (job,):
        job.progress(1, 2, "token=abcdef99")
        wait_until(lambda: queue.progress(job.id))
        for path in ("/jobs", "/jobs?state=running", "/api/jobs"):
            assert "abcdef99" not in person().get(path).text


def test_scheduled_jobs_are_listed_as_they_are_due_page_by_page(
    queue: PgQueue, person: MakePerson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "SHOWN", 2)
    sell = queue.task(name="sell")(_sell)
    ids = {hours: sell.using(delay=timedelta(hours=hours)).enqueue().id for hours in (9, 1, 5, 3, 7)}
    ann, path, seen = person(), "/jobs?state=scheduled", []
    while path:
        page = ann.get(path)
        seen += shown(page)
        later = re.search(r'rel="next" href="([^"]+)">Later', page.text)
        path = later[1].replace("&amp;", "&") if later else ""
    assert seen == [ids[hours] for hours in (1, 3, 5, 7, 9)]
    assert "5-5 of 5" in plain(page)
    assert ann.get("/jobs?state=scheduled&due=soon").status_code == 400


def test_blocked_jobs_say_by_what(queue: PgQueue, person: MakePerson) -> None:
    queue.task(name="sell", limit=Limit(1))(_sell).enqueue(1)
    queue.control.pause("default")
    for path in ("/jobs?state=blocked", "/jobs"):
        assert "limit task:sell, its queue is paused" in plain(person().get(path))


def test_the_states_are_counted_and_a_page_says_which_part_it_is(
    queue: PgQueue, person: MakePerson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "SHOWN", 50)
    sell = queue.task(name="sell")(_sell)
    queue.enqueue_many(sell.call() for _ in range(120))
    queue.task(name="mail", queue="mail")(_sell).enqueue()
    ann = person()
    first = ann.get("/jobs?state=ready")
    assert "1-50 of 121" in plain(first)
    assert "ready 121" in plain(first)
    assert "running 0" in plain(first)
    second = ann.get(re.findall(r'rel="next" href="([^"]+)"', first.text)[0].replace("&amp;", "&"))
    assert "51-100 of 121" in plain(second)
    assert "ready 1 " in plain(ann.get("/jobs?queue=ma*"))
    assert "1-1 of 1" in plain(ann.get("/jobs?queue=mail&state=ready"))
    of_a_task = plain(ann.get("/jobs?task=sell&state=ready"))
    assert ("1-50" in of_a_task, " of 121" in of_a_task) == (True, False), "such jobs are not counted"
    assert json.loads(ann.get("/api/jobs?state=ready").text)["total"] == {"jobs": 121, "estimated": False}


# The box


def test_the_box_leads_to_a_job_wherever_it_is(world: World, person: MakePerson) -> None:
    ann = person()
    for job in (world.ready, world.dead, world.succeeded):
        for page in ("/jobs", "/dead"):
            answer = ann.get(f"{page}?q={job}")
            assert (answer.status_code, answer.headers["Location"]) == (302, f"/jobs/{job}")
    for number in (999999, 2**63):
        missing = ann.get(f"/jobs?q=%23{number}")
        assert (missing.status_code, f"there is no job {number}" in missing.text) == (400, True)
    for path, job in (("/jobs/cancel", world.ready), ("/dead/retry", world.dead)):
        assert "1 job?" in ann.get(f"{path}?q={job}").text, (
            "an action on a job's address is for that job alone"
        )
    assert [one["id"] for one in json.loads(ann.get(f"/api/jobs?q={world.dead}").text)["jobs"]] == [
        world.dead
    ]


@pytest.mark.usefixtures("world")
def test_terms_are_combined_and_stay_in_the_box(person: MakePerson) -> None:
    ann = person()
    page = ann.get("/jobs?q=receipt+order_id=9004+queue:mail")
    assert len(shown(page)) == 1
    assert 'value="receipt order_id=9004 queue:mail"' in page.text
    assert shown(ann.get("/jobs?q=receipt+order_id=9004+queue:media")) == []
    assert (
        'value="task:shop.mail.* state:ready order_id=9004"'
        in ann.get("/jobs?state=ready&task=shop.mail.*&args=order_id=9004").text
    )
    assert len(shown(ann.get("/dead?q=charge+error:ValueError"))) == 2
    for path in ("/overview", "/queues", "/workers"):
        assert 'name="q" type="search"' in ann.get(path).text


@pytest.mark.parametrize("path", ["/jobs", "/dead"])
@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("q=taks:x+order_id=7", "there is no such term"),
        ("args=x&task=shop.sell", "write order_id=7"),
        ("after=soon&task=shop.sell", "write an age"),
        ("q=password=1", "is hidden here"),
    ],
)
def test_a_wrong_term_keeps_the_form_and_says_what_is_wrong_beside_it(
    person: MakePerson, path: str, query: str, said: str
) -> None:
    page = person().get(f"{path}?{query}")
    assert page.status_code == 400
    assert "Bad Request" not in page.text
    assert 'id="wrong" role="alert"' in page.text
    assert 'aria-describedby="wrong"' in page.text
    assert said in page.text
    typed = "taks:x order_id=7" if "taks" in query else "password=1" if "password" in query else "shop.sell"
    assert typed in page.text
    answer = person().get(f"/api{path}?{query}")
    assert (answer.status_code, said in json.loads(answer.text)["error"]) == (400, True)


def test_a_search_says_how_far_back_it_looked_and_goes_on_in_one_click(
    queue: PgQueue, person: MakePerson, monkeypatch: pytest.MonkeyPatch
) -> None:
    sell = queue.task(name="sell")(_sell)
    queue.enqueue_many(sell.call(number) for number in range(1, 41))
    monkeypatch.setattr(searching, "FIRST", 1)
    monkeypatch.setattr(searching, "READ", 2)
    ann = person()
    page = ann.get("/jobs?q=order_id=1")
    assert shown(page) == []
    assert re.search(r"Looked at the jobs enqueued since\s+<time data-clock", page.text)
    (address,) = re.findall(r'href="([^"]+)">Go on', page.text)
    assert shown(ann.get(address.replace("&amp;", "&"))) == [1]


# Check boxes


def test_chosen_jobs_are_retried_deleted_cancelled_and_run(
    queue: PgQueue, world: World, person: MakePerson
) -> None:
    ann = person()
    one, two, three = sorted(job.id for job in queue.insight.search(state="dead").jobs)[:3]
    page = ann.get("/dead")
    assert f'<input type="checkbox" name="id" value="{one}"' in page.text
    asked = ann.get(f"/dead/retry?id={one}&id={two}&id={world.ready}&chosen=1")
    assert "Retry 2 jobs?" in asked.text
    assert "Chosen, but in another state 1" in plain(asked)
    assert "2 jobs ready again." in ann.do(f"/dead/retry?id={one}&id={two}&chosen=1").text
    assert "1 job deleted." in ann.do(f"/dead/purge?id={three}&chosen=1").text
    assert "2 jobs cancelled." in ann.do(f"/jobs/cancel?id={one}&id={two}&chosen=1").text
    assert "1 job ready." in ann.do(f"/jobs/run?id={world.scheduled}&id={one}&chosen=1").text
    assert queue.job(world.scheduled).state == "ready"
    assert queue.insight.audit()[0].action == "run now"


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("path", ["/dead/retry", "/dead/purge", "/jobs/cancel", "/jobs/run", "/jobs/move"])
def test_nothing_is_done_where_no_job_was_chosen(queue: PgQueue, person: MakePerson, path: str) -> None:
    ann = person()
    page = ann.get(f"{path}?chosen=1&queue=mail")
    assert "No job was chosen" in page.text
    answer = ann.client.post(
        f"{path}?chosen=1&queue=mail", data={"pgqueue_csrf": key_in(page), "to": "x"}, headers=ORIGIN
    )
    assert (answer.status_code, "no job was chosen" in answer.text) == (400, True)
    assert queue.insight.audit() == []
    assert ann.get(f"{path}?chosen=1&id=x").status_code == 400


def test_after_an_action_on_chosen_jobs_the_list_has_its_filter(world: World, person: MakePerson) -> None:
    ann = person()
    page = ann.get(f"/dead/retry?id={world.dead}&chosen=1&queue=billing&list=jobs&below=99")
    assert 'href="/jobs?queue=billing&amp;below=99">Back' in page.text


def test_each_dead_job_has_its_retry_and_each_scheduled_one_its_start(
    world: World, person: MakePerson
) -> None:
    ann = person()
    assert f'href="/dead/retry?id={world.dead}&amp;list=dead">Retry…' in ann.get("/dead").text
    assert (
        f'href="/jobs/run?id={world.scheduled}&amp;state=scheduled">Run now…'
        in ann.get("/jobs?state=scheduled").text
    )
    retries = person(Right.RETRY)
    assert re.findall('formaction="([^"]+)"', retries.get("/dead").text) == ["/dead/retry"]
    assert re.findall('formaction="([^"]+)"', retries.get("/jobs").text) == ["/jobs/run", "/dead/retry"]
    reader = person(Right.LOOK)
    for path in ("/dead", "/jobs", "/jobs?state=scheduled", "/queues", "/workers"):
        page = reader.get(path).text
        assert 'type="checkbox"' not in page, path
        assert "…</a>" not in page, path
        assert "formaction" not in page, path


# Rows that stay


def _look_again(ann: Person, path: str, page: TestResponse) -> TestResponse:
    (said,) = re.findall(r'data-list="([^"]*)"', page.text)
    return ann.get(path, headers={LIVE: "1", LIST: said})


def test_a_list_that_is_looked_at_keeps_its_rows_and_counts_new_ones(
    queue: PgQueue, person: MakePerson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "SHOWN", 3)
    sell = queue.task(name="sell")(_sell)
    queue.enqueue_many(sell.call() for _ in range(5))
    ann = person()
    page = ann.get("/jobs?state=ready")
    assert shown(page) == [5, 4, 3]
    queue.enqueue_many(sell.call() for _ in range(2))
    queue.control.jobs(ids=[4]).cancel()
    again = _look_again(ann, "/jobs?state=ready", page)
    assert shown(again) == [5, 4, 3], "in their places, though one is cancelled and two are newer"
    assert "2 new jobs" in plain(again)
    assert re.search(r"4\s+cancelled", plain(again))
    assert 'rel="next"' in again.text
    queue.enqueue_many(sell.call() for _ in range(9))
    assert "3 or more new jobs" in plain(_look_again(ann, "/jobs?state=ready", again))
    assert shown(ann.get("/jobs?state=ready")) == [16, 15, 14]


def test_a_job_that_comes_into_a_list_among_its_rows_is_new_and_one_behind_them_is_not(
    queue: PgQueue, person: MakePerson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "DEAD_SHOWN", 2)
    die(queue, "die", *({"n": n} for n in range(4)), error=ValueError("no"))
    ask(queue, "update pgqueue.dead_jobs set id = id * 10")
    ann = person()
    page = ann.get("/dead")
    assert shown(page) == [40, 30]
    ask(queue, "update pgqueue.dead_jobs set id = 15 where id = 10")
    assert "new job" not in plain(_look_again(ann, "/dead", page))
    ask(queue, "update pgqueue.dead_jobs set id = 39 where id = 40")
    assert "1 new job" in plain(_look_again(ann, "/dead", page)), "39 has come, 20 has only moved up"
    ask(queue, "delete from pgqueue.dead_jobs where id = 39")
    assert "new job" not in plain(_look_again(ann, "/dead", page)), "20 has only moved up"
    ask(queue, "update pgqueue.dead_jobs set id = 35 where id = 20")
    assert "1 new job" in plain(_look_again(ann, "/dead", page))


def test_an_empty_list_says_that_jobs_have_come(queue: PgQueue, person: MakePerson) -> None:
    ann = person()
    page = ann.get("/jobs")
    queue.task(name="sell")(_sell).enqueue()
    assert "1 new job" in plain(_look_again(ann, "/jobs", page))


def test_a_list_stays_as_far_as_its_search_went(
    queue: PgQueue, person: MakePerson, monkeypatch: pytest.MonkeyPatch
) -> None:
    sell = queue.task(name="sell")(_sell)
    queue.enqueue_many(sell.call(number) for number in range(9))
    monkeypatch.setattr(searching, "FIRST", 1)
    monkeypatch.setattr(searching, "READ", 2)
    ann = person()
    page = ann.get("/jobs?q=order_id=8")
    again = _look_again(ann, "/jobs?q=order_id=8", page)
    assert shown(again) == shown(page) == [9]
    (before, after) = (re.findall(r'href="([^"]+)">Go on', one.text) for one in (page, again))
    assert before == after != []


@pytest.mark.parametrize(
    "said",
    [
        "x",
        "1,2;3;-",
        "9" * 5000 + ";0;-",
        "99999999999999999999;1;-",
        "-1;0;-",
        "1;0;T:",
        "1;1;2026-99-99T99:99:99Z,1",
        "1;1;999999999999999999",
    ],
)
def test_what_a_browser_makes_up_of_a_list_harms_nothing(world: World, person: MakePerson, said: str) -> None:
    for path in ("/jobs", "/api/jobs", "/jobs?state=scheduled", "/api/jobs?state=scheduled"):
        status = person().get(path, headers={LIVE: "1", LIST: said}).status_code
        assert status in ({200, 400} if "Z," in said else {200}), (path, world)


# Numbers to type, groups, operations


def test_an_action_on_all_or_on_many_jobs_asks_for_their_number(
    queue: PgQueue, person: MakePerson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many_jobs, "LARGE", 5)
    sell = queue.task(name="sell", queue="mail")(_sell)
    queue.enqueue_many(sell.call() for _ in range(6))
    ann = person()
    for path in ("/jobs/cancel", "/jobs/cancel?queue=mail"):
        asked = ann.get(path)
        assert "Type 6 to confirm" in asked.text
        for fields in ({}, {"number": "6"}, {"number": "5", "asked": "6"}, {"number": "all", "asked": "6"}):
            answer = ann.client.post(path, data={"pgqueue_csrf": key_in(asked), **fields}, headers=ORIGIN)
            assert (answer.status_code, 'role="alert"' in answer.text) == (400, True), fields
    assert queue.insight.audit() == []
    queue.enqueue_many(sell.call() for _ in range(6))
    grown = ann.client.post(
        "/jobs/cancel", data={"pgqueue_csrf": key_in(asked), "number": "6", "asked": "6"}, headers=ORIGIN
    )
    assert (grown.status_code, "there are 12 jobs now" in grown.text) == (400, True)
    assert 'name="asked" value="12"' in grown.text
    assert "12 jobs cancelled." in ann.do("/jobs/cancel", number="12", asked="12").text


@pytest.mark.usefixtures("world")
def test_a_question_counts_what_its_action_is_done_to(person: MakePerson) -> None:
    ann = person()
    assert "Cancel 20 jobs?" in ann.get("/jobs/cancel?queue=mail").text
    asked = ann.get("/jobs/move?queue=mail")
    assert "Move 17 jobs?" in asked.text
    assert "Running, left alone 3" in plain(asked)


def test_the_row_of_a_group_of_errors_acts_on_the_jobs_of_that_group_only(
    queue: PgQueue, person: MakePerson
) -> None:
    for number in range(4):
        die(queue, "charge", {"n": number}, error=ConnectionError(f"refused order {number}"))
    (other,) = die(queue, "charge", {"n": 9}, error=ConnectionError("no route"))
    ann = person()
    groups: list[dict[str, Any]] = json.loads(ann.get("/api/dead").text)["groups"]
    assert [one["jobs"] for one in groups] == [4, 1]
    page = ann.get("/dead").text
    for group in groups:
        path = f"/dead/retry?group={group['key']}"
        assert path in page
        jobs_text = "1 job" if group["jobs"] == 1 else f"{group['jobs']} jobs"
        assert f"Retry {jobs_text}?" in ann.get(path).text
        assert len(shown(ann.get(f"/dead?group={group['key']}"))) == group["jobs"]
    assert "4 jobs ready again." in ann.do(f"/dead/retry?group={groups[0]['key']}").text
    assert [job.id for job in queue.insight.search(state="dead").jobs] == [other]


def test_the_page_of_an_operation_shows_how_far_it_is_and_then_what_it_did(
    queue: PgQueue, person: MakePerson, monkeypatch: pytest.MonkeyPatch
) -> None:
    sell = queue.task(name="sell")(_sell)
    queue.enqueue_many(sell.call() for _ in range(8))
    monkeypatch.setattr(bulk, "AT_ONCE", 2)
    monkeypatch.setattr("pgqueue.dashboard.operations.SOON", 0.0)
    held = threading.Event()
    change, calls = bulk_jobs.change, list[int]()

    def slow(*args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            assert held.wait(30)
        return change(*args, **options)

    monkeypatch.setattr(bulk, "change", slow)
    ann = person()
    page = ann.do("/jobs/reprioritise?task=sell", priority="9")
    path = "/operations/1?of=8"
    assert page.request.url.endswith(path)
    assert "2 of 8" in plain(page)
    assert '<progress value="2" max="8"' in page.text
    assert "left" in plain(page)
    assert "goes on" not in page.text
    held.set()
    wait_until(lambda: not queue.insight.audit()[0].unfinished)
    ended = ann.get(path)
    assert re.search(r"8 jobs got priority 9 in [\d.]+ (s|min)\.", plain(ended))
    assert "<progress" not in ended.text
    assert "goes on" not in ended.text


# Queues and workers


def _many_queues(queue: PgQueue) -> None:
    ask(
        queue,
        "insert into pgqueue.jobs (queue, task) select 'queue-' || lpad(n::text, 3, '0'), 't'"
        " from generate_series(1, 300) as n, generate_series(1, n % 7)",
    )
    queue.control.pause("queue-007")


def test_three_hundred_queues_are_sorted_filtered_and_paged(queue: PgQueue, person: MakePerson) -> None:
    _many_queues(queue)
    worker_row(queue, queues=["queue-00*"])
    worker_row(queue, pid=2, queues=["queue-008"])
    ann = person()

    def names(query: str) -> list[str]:
        return re.findall(r'class="name" href="[^"]+">([^<]+)', ann.get(f"/queues?{query}").text)

    assert len(names("")) == 100
    assert "Page 1 of 3" in ann.get("/queues").text
    assert names("page=2")[0] == sorted(json.loads(ann.get("/api/queues").text)["serving"])[100]
    assert names("sort=ready")[0] == "queue-006"
    assert names("sort=workers")[-1] != "queue-008"
    assert names("like=07&sort=ready")[:1] == ["queue-076"]
    assert names("state=paused") == ["queue-007"]
    assert "queue-008" not in names("state=without workers")
    page = ann.get("/queues?like=queue-008")
    assert re.search(r'<td class="num wide">2</td>', page.text), "workers"
    assert "/queue/pause?name=queue-008" in page.text
    assert "/queue/resume?name=queue-007" in ann.get("/queues?like=queue-007").text
    assert "none" in plain(ann.get("/queues?like=queue-100"))
    assert ann.get("/queues?sort=x").status_code == 400
    assert ann.get("/queues?state=x").status_code == 400
    assert len(json.loads(ann.get("/api/queues").text)["queues"]) >= 257


def test_many_workers_are_rows_and_few_are_cards(queue: PgQueue, person: MakePerson) -> None:
    worker_row(queue)
    ann = person()
    assert 'class="card worker alive"' in ann.get("/workers").text
    for number in range(150):
        worker_row(queue, host=f"host-{number % 10}", pid=number)
    ask(queue, "update pgqueue.workers set lease_until = now() - interval '1 s' where pid = 77")
    page = ann.get("/workers")
    assert 'class="card worker' not in page.text
    names = re.findall(r'class="name" href="/workers/[^"]+">([^<]+)', page.text)
    assert len(names) == 100
    assert names[0] == "host-7:77", "those with a trouble come first"
    found = re.findall(
        r'class="name" href="(/workers/[^"]+)">([^<]+)', ann.get("/workers?like=host-3&sort=name").text
    )
    assert len(found) == 15
    assert [name for _, name in found] == sorted(name for _, name in found)
    assert found[0][1] in ann.get(found[0][0]).text
    assert "host-7:77" in ann.get("/workers?state=lost").text
    assert len(json.loads(ann.get("/api/workers").text)["workers"]) == 151


def test_a_worker_that_has_claimed_more_jobs_than_slots_is_not_busier_than_it_can_be(
    queue: PgQueue, person: MakePerson
) -> None:
    sell = queue.task(name="sell")(_sell)
    queue.enqueue_many(sell.call() for _ in range(18))
    with queue.take(18, timeout=5) as jobs_taken:
        ask(queue, "update pgqueue.workers set slots = 4")
        page = plain(person().get("/workers"))
        assert len(jobs_taken) == 18
    assert "4 of 4 busy, 14 claimed" in page
    assert "Busy 4" in page
    assert "Claimed, not started 14" in page


# Words


def test_questions_say_what_is_affected_and_lead_back(
    queue: PgQueue, world: World, person: MakePerson
) -> None:
    worker_row(queue)
    ann = person()
    page = ann.get("/jobs/cancel?queue=mail").text
    assert "Affected jobs" in page
    assert ">Back</a>" in page
    assert "One job of each kind" in page
    worker = next(one for one in queue.workers.list() if one.listens)
    asked = plain(ann.get(f"/workers/{worker.id}/set"))
    assert f"Change the slots of {worker.name}?" in asked
    assert "Affected workers" in asked
    assert "Stop taking new jobs into queue mail?" in ann.get("/queue/close?name=mail").text
    assert "Stop taking new jobs…" in ann.get("/queue?name=mail").text
    assert "Download pytest" in ann.get(f"/jobs/{world.dead}").text
