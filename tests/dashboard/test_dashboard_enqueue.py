"""A person enqueues a job by a form: of a task that a worker has said that it runs, with arguments that fit it."""

from collections.abc import Callable

import pytest
from dashboard.people import Person
from looking import ask

from pgqueue import PgQueue
from pgqueue.app.named import known_tasks_of
from pgqueue.dashboard import Right
from pgqueue.store.jobs import known_tasks


@pytest.fixture
def said(queue: PgQueue) -> None:
    """A worker has started that runs a task, and this program has no code of it."""
    app = PgQueue(queue.database.dsn, schema=queue.database.catalogue.schema)

    @app.task(name="mail.send", queue="mail")
    def send(to: str, copies: int = 2, tags: list[str] | None = None) -> None: ...

    @app.task(name="mail.tidy")
    def tidy() -> None: ...

    queue.database.run(known_tasks.say(known_tasks_of(app.tasks)))
    app.close()


@pytest.mark.usefixtures("said")
def test_the_form_shows_what_a_task_takes_and_the_job_is_there(
    queue: PgQueue, person: Callable[..., Person]
) -> None:
    ann = person()
    assert 'href="/jobs/enqueue"' in ann.get("/jobs").text
    first = ann.get("/jobs/enqueue")
    assert '<option value="mail.send">' in first.text
    assert '<option value="mail.tidy">' in first.text
    second = ann.do("/jobs/enqueue", task="mail.send")
    assert second.request.path == "/jobs/enqueue"
    for text in ("<dt>to</dt><dd>string</dd>", "<dd>integer, may be left out</dd>", "<dd>mail</dd>"):
        assert text in second.text
    assert "&#34;to&#34;: &#34;&#34;" in second.text
    assert "&#34;copies&#34;: 2" in second.text
    page = ann.do("/jobs/enqueue?task=mail.send", arguments='{"to": "ann"}', delay="60", unique_key="one")
    ((job, args, waits, key),) = ask(
        queue, "select id, args, run_at > now() + interval '50 s', unique_key from pgqueue.jobs"
    )
    assert f"Job {job} is enqueued." in page.text
    assert (args, waits, key) == ({"to": "ann"}, True, "one")
    again = ann.do("/jobs/enqueue?task=mail.send", arguments='{"to": "bob"}', unique_key="one")
    assert f"Not enqueued: job {job} has the unique key." in again.text


@pytest.mark.usefixtures("said")
@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"arguments": "{"}, "write a JSON object"),
        ({"arguments": "[1]"}, "write a JSON object"),
        ({"arguments": '{"to": 1}'}, "argument &#39;to&#39; is of the JSON type integer"),
        ({"arguments": "{}"}, "missing argument &#39;to&#39;"),
        ({"arguments": '{"to": "ann", "copy": 1}'}, "did you mean &#39;copies&#39;"),
        ({"arguments": '{"to": "ann"}', "delay": "soon"}, "give a number of seconds"),
        ({"arguments": '{"to": "ann"}', "delay": "nan"}, "delay"),
    ],
)
def test_what_does_not_fit_is_said_and_what_was_typed_stays(
    queue: PgQueue, person: Callable[..., Person], fields: dict[str, str], complaint: str
) -> None:
    page = person().do("/jobs/enqueue?task=mail.send", **fields)
    assert page.status_code == 400
    assert complaint in page.text
    assert fields["arguments"].replace('"', "&#34;") in page.text
    assert ask(queue, "select from pgqueue.jobs") == []


def test_a_task_that_no_worker_has_named_is_said_to_be_so_and_waits(
    queue: PgQueue, person: Callable[..., Person]
) -> None:
    ann = person()
    assert "no task is known yet" in ann.get("/jobs/enqueue").text
    assert ann.do("/jobs/enqueue", task="no name").status_code == 400
    assert "No worker that has started runs this task" in ann.do("/jobs/enqueue", task="later").text
    ann.do("/jobs/enqueue?task=later", arguments='{"any": [1]}')
    assert ask(queue, "select task, args from pgqueue.jobs") == [("later", {"any": [1]})]


def test_a_hostile_schema_breaks_no_page(queue: PgQueue, person: Callable[..., Person]) -> None:
    for number, schema in enumerate(
        (
            "[1]",
            '{"properties": 3, "required": "x"}',
            '{"properties": {"<b>": {"$ref": "#/$defs/a"}}, "required": ["<b>"], "$defs": {"a": {"$ref": "#/$defs/a"}}}',
            '{"properties": {"a": {"default": "' + "x" * 30_000 + '"}}}',
        )
    ):
        ask(
            queue,
            "insert into pgqueue.known_tasks (task, queue, arguments) values (%s, 'q', %s)",
            f"t{number}",
            schema,
        )
        page = person().get(f"/jobs/enqueue?task=t{number}")
        assert page.status_code == 200
        assert "<b>" not in page.text


def test_without_the_right_there_is_no_form(person: Callable[..., Person]) -> None:
    reader = person(Right.RETRY)
    assert "/jobs/enqueue" not in reader.get("/jobs").text
    assert reader.get("/jobs/enqueue").status_code == 403
