"""The pages of workflows: nodes are links to jobs, crowds are folded and unfolded, colours have a legend, 1,000 nodes stay small."""

import re
from collections.abc import Callable

import pytest
from dashboard.people import Person
from dashboard.world import stored_alert, worker_row

from pgqueue import PgQueue, Workflow, chain, group
from pgqueue.dashboard.flow_picture import bar, progress_text
from pgqueue.dashboard.pages import PAGES
from pgqueue.testing import drain

MakePerson = Callable[..., Person]


@pytest.fixture
def shop(queue: PgQueue) -> PgQueue:
    queue.task(name="shop.extract")(lambda: list(range(30)))
    queue.task(name="shop.load")(lambda row: row)
    queue.task(name="shop.finish")(lambda: None)
    return queue


def fan_out(queue: PgQueue, jobs: int, **options: object) -> int:
    flow = Workflow("import", **options)  # type: ignore[arg-type]  # by name
    flow.add("extract", queue.tasks["shop.extract"].call())
    for number in range(jobs):
        flow.add(f"part-{number}", queue.tasks["shop.load"].call(number), after="extract")
    flow.add("finish", queue.tasks["shop.finish"].call(), after=[f"part-{number}" for number in range(jobs)])
    return flow.enqueue().id


def test_a_node_is_a_link_to_its_job_and_a_crowd_to_its_jobs(shop: PgQueue, person: MakePerson) -> None:
    flow, ann = fan_out(shop, 30), person()
    page = ann.get(f"/workflows/{flow}").text
    drawing = page[page.index('<svg class="flow"') : page.index("</svg>", page.index('<svg class="flow"'))]
    nodes = {node.name: node for node in shop.flows.get(flow).nodes}
    assert f'href="/jobs/{nodes["extract"].job_id}"' in drawing
    crowd = nodes["part-0"].id
    assert f"open={crowd}#node-{crowd}" in drawing
    assert "0 of 30 done" in drawing
    assert "part-7" not in page
    assert "part-7" in ann.get(f"/workflows/{flow}?open={crowd}").text


def test_the_jobs_of_a_crowd_are_chosen_by_their_state_and_come_in_pages(
    shop: PgQueue, person: MakePerson
) -> None:
    number, ann = (
        group([shop.tasks["shop.load"].call(n) for n in range(600)], name="big").enqueue().id,
        person(),
    )
    ids = [job.id for job in shop.insight.search(task="shop.load", limit=1_000).jobs]
    shop.control.jobs(ids=[ids[-1], ids[-2]]).cancel()
    (crowd,) = (node.id for node in shop.flows.get(number).nodes if node.members.get("cancelled"))  # type: ignore[call-overload]  # by its text
    page = ann.get(f"/workflows/{number}?open={crowd}").text
    assert "0 of 600 done, 2 cancelled" in page
    assert len(re.findall(r'href="/jobs/\d+"', page)) == 100
    following = re.search(r'href="([^"]*after=\d+[^"]*)"', page)
    assert following is not None
    assert ann.get(following[1].replace("&amp;", "&")).status_code == 200
    some = ann.get(f"/workflows/{number}?open={crowd}&only=cancelled").text
    assert {*re.findall(r'href="/jobs/(\d+)"', some)} == {str(ids[-1]), str(ids[-2])}


def test_a_workflow_of_a_thousand_jobs_is_a_small_page(shop: PgQueue, person: MakePerson) -> None:
    flow = fan_out(shop, 1_000)
    page = person().get(f"/workflows/{flow}")
    assert page.status_code == 200
    assert len(page.data) < 20_000
    assert "0 of 1,000 done" in page.text


def test_the_drawing_and_the_table_have_one_legend_of_states(shop: PgQueue, person: MakePerson) -> None:
    flow = Workflow("import")
    flow.add("extract", shop.tasks["shop.extract"].call())
    flow.map("rows", shop.tasks["shop.load"], over="extract")
    flow.add("finish", shop.tasks["shop.finish"].call(), after="rows")
    flow.wait("approved", after="finish")
    handle = flow.enqueue()
    page = person().get(f"/workflows/{handle.id}").text
    legend = page[
        page.index('<ul class="legend states"') : page.index("</ul>", page.index('<ul class="legend'))
    ]
    for word in re.findall(r'<g class="node ([a-z-]+) one"', page):
        assert f'class="state {word}"' in legend, word
    assert "waits for a signal" in page
    for ours in ("pgqueue.wait", "released"):
        assert ours not in page
    drain(shop)
    done = person().get(f"/workflows/{handle.id}").text
    assert "30 of 30 done" in done
    assert "pgqueue.map" not in done
    (listed,) = shop.flows.list()
    assert listed.counts == shop.flows.get(handle.id).counts
    assert sum((listed.counts or {}).values()) == 33
    assert "32 of 33 done" in person().get("/workflows").text


def test_a_workflow_that_waits_for_another_of_its_key_links_to_it(shop: PgQueue, person: MakePerson) -> None:
    first, second = (fan_out(shop, 2, key="shop 7", in_turn=True) for _ in range(2))
    page = person().get(f"/workflows/{second}").text
    assert f'href="/workflows/{first}">workflow {first}</a> of the same key shop 7 has ended' in page
    assert "NodeKind" not in page


def test_no_page_shows_the_class_of_a_value(shop: PgQueue, person: MakePerson) -> None:
    first, second = (fan_out(shop, 2, key="shop 7", in_turn=True) for _ in range(2))
    shop.flows.cancel(fan_out(shop, 3), by="ann")
    stored_alert(shop)
    worker_row(shop)
    shop.schedules.add("nightly", shop.tasks["shop.finish"].call(), "30 1 * * *", timezone="Europe/London")
    (job,) = (node.job_id for node in shop.flows.get(second).nodes if node.name == "extract")
    named = {"queue": "default", "task": "shop.load", "schedule": "nightly", "alert": "slow mail"}
    ann = person()
    for page in PAGES:
        path = page.path.replace("<int:job_id>", str(job)).replace("<int:flow_id>", str(second))
        path = path.replace("<int:number>", str(shop.insight.audit()[0].id))
        answer = ann.get(path, query_string={"name": named.get(page.name, "none")})
        assert not re.findall(r"(?:&lt;|<)[A-Z]\w*\.[A-Z_]+\b", answer.text), path
    assert first < second


def test_the_list_shows_how_far_each_workflow_is(shop: PgQueue, person: MakePerson) -> None:
    chain(shop.tasks["shop.finish"].call(), shop.tasks["shop.finish"].call(), name="two").enqueue()
    with shop.take(1, timeout=5):
        pass
    assert "1 of 2 done" in person().get("/workflows").text


def test_a_bar_has_a_part_for_each_state_and_its_words_say_what_is_wrong() -> None:
    counts = {"succeeded": 20, "skipped": 2, "failed": 3, "running": 5}
    assert progress_text(counts) == "22 of 30 done, 3 failed"
    parts = re.findall(r'class="part ([a-z-]+)" x="([\d.]+)" y="0" width="([\d.]+)"', bar(counts))
    assert [one[0] for one in parts] == ["succeeded", "skipped", "running", "failed"]
    assert sum(float(one[2]) for one in parts) == pytest.approx(100, abs=0.5)
