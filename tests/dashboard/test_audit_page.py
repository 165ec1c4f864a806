"""The page of the audit says what people did in sentences with links, and every action can be given a reason."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from dashboard.people import Person, die
from looking import ask

from pgqueue import Limit, PgQueue
from pgqueue.dashboard.audit_words import sentence
from pgqueue.values.bulk.operation import AuditEntry

MakePerson = Callable[..., Person]


def entry(action: str, target: str, **given: object) -> AuditEntry:
    known = {"id": 1, "at": datetime(2026, 1, 1, tzinfo=UTC), "by": "root", "details": None, "jobs": None}
    return AuditEntry(action=action, target=target, **{**known, **given})  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize(
    ("done", "said", "links"),
    [
        (
            entry("purge_dead", "*", details={"filter": {"ids": [49319]}}, counts={"done": 1}),
            "deleted dead job 49319",
            [("job", {"job_id": 49319})],
        ),
        (
            entry("cancel", "mail", details={"filter": {"queue": "mail"}}, counts={"done": 3, "locked": 1}),
            "cancelled 3 jobs of queue mail; 1 skipped: locked by another transaction",
            [("queue", {"name": "mail"})],
        ),
        (
            entry("purge_dead", "*", details={"filter": {"ids": [7]}}, counts={}),
            "deleted nothing of dead job 7",
            [("job", {"job_id": 7})],
        ),
        (
            entry("retry_dead", "*", details={"filter": {"everything": True}}, counts={"done": 1200}),
            "retried 1,200 dead jobs",
            [],
        ),
        (
            entry("move", "mail-*", details={"filter": {"queue": "mail-*"}, "to": "slow"}, counts={"done": 1}),
            "moved 1 job of queue mail-* to queue slow",
            [("queue", {"name": "slow"})],
        ),
        (entry("cancel", "job 9", jobs=1), "cancelled job 9", [("job", {"job_id": 9})]),
        (entry("enqueue", "8", details={"task": "a.b"}), "enqueued job 8: task a.b", [("job", {"job_id": 8})]),
        (entry("pause", "mail", details={"queues": "mail", "why": "!"}), "paused queue mail", [("queue", {"name": "mail"})]),
        (entry("workflow retry", "5", details={"what": "all"}), "retried workflow 5: what all", [("workflow", {"flow_id": 5})]),
        (entry("worker stop", "*"), "stopped worker: all", []),
        (entry("limit set", "name:api", details={"to": "4 at once"}), "set limit name:api: to 4 at once", [("limit", {"name": "name:api"})]),
        (entry("of another release", "x", details={"a": "b"}), "of another release x: a b", []),
        (entry("run now", "job 9999999999999999999"), "made due now: job 9999999999999999999", []),
    ],
)  # fmt: skip
def test_an_entry_is_a_sentence_whose_names_are_links(
    done: AuditEntry, said: str, links: list[tuple[str, dict[str, object]]]
) -> None:
    parts = sentence(done)
    assert "".join(one.text for one in parts) == said
    assert [(one.page, one.values) for one in parts if one.page] == links


def test_every_action_takes_a_reason_and_the_page_shows_it(queue: PgQueue, person: MakePerson) -> None:
    ann = person()
    (dead,) = die(queue, "die", {"number": 1}, error=ValueError("no"))
    job = queue.task(name="step")(lambda: None).enqueue()
    queue.task(name="call", limit=Limit(1, name="api"))(lambda: None).enqueue()
    for path, fields in (
        (f"/jobs/{job.id}/cancel", {}),
        (f"/jobs/{dead}/retry", {}),
        ("/jobs/cancel?task=die", {}),
        ("/queue/pause?name=default", {}),
        ("/queue/resume?name=default", {}),
        ("/limit/set?name=name:api", {"most": "4"}),
    ):
        assert "note good" in ann.do(path, why=f"incident {path}", **fields).text, path
        (latest, *_) = queue.insight.audit(limit=1)
        assert (latest.details or {}).get("why") == f"incident {path}", path
        assert f"incident {path}" in ann.get("/audit").text
    assert [one.paused_why for one in queue.insight.queues() if one.queue == "default"] == [None]


def test_a_reason_that_cannot_be_stored_is_refused_and_kept_in_the_form(
    queue: PgQueue, person: MakePerson
) -> None:
    job = queue.task(name="step")(lambda: None).enqueue()
    asked = person().do(f"/jobs/{job.id}/cancel", why="long " * 2_000)
    assert asked.status_code == 400
    assert "Why" in asked.text
    assert queue.job(job.id).state == "ready"


def test_the_audit_is_filtered_by_person_action_and_time(queue: PgQueue, person: MakePerson) -> None:
    queue.control.declare("mail")
    queue.control.pause("mail", by="bob")
    queue.control.resume("mail", by="bob")
    queue.control.pause("mail", by="ann")
    ask(queue, "update pgqueue.audit set at = at - interval '3 days' where said_by = 'ann'")
    ann = person()

    def shown(query: str) -> list[tuple[str, str]]:
        return [(one["by"], one["action"]) for one in ann.get(f"/api/audit?{query}").json["entries"]]  # type: ignore[index]  # JSON

    assert shown("by=bob") == [("bob", "resume"), ("bob", "pause")]
    assert shown("action=pause") == [("ann", "pause"), ("bob", "pause")]
    assert shown("until=1d") == [("ann", "pause")]
    assert shown("since=1d&action=pause") == [("bob", "pause")]
    page = ann.get("/audit?by=bob")
    assert 'value="bob"' in page.text
    assert "No entry matches." in ann.get("/audit?by=eve").text
    assert ann.get("/audit?since=nonsense").status_code == 400
