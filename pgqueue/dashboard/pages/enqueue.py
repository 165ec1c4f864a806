"""The form that enqueues a job: first which task, of those that workers have said that they run; then its arguments."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pgqueue.dashboard.access import Right
from pgqueue.dashboard.page import ActionQuestion, ActionResult, Field, PageAction, Visit
from pgqueue.errors import InvalidOption, PayloadNotEncodable, PayloadTooLarge
from pgqueue.values.jobs.job import Outcome
from pgqueue.values.jobs.options import check_name
from pgqueue.values.payloads.schema import example_of, parameters_of

MOST: Final = 1_000
"""Tasks to choose from."""
LENGTH: Final = "seconds, from now on"


def _ask(visit: Visit) -> ActionQuestion:
    task = visit.request.args.get("task", "")
    if not task:
        known = visit.queue.insight.known_tasks(limit=MOST)
        return ActionQuestion(
            title="Enqueue a job",
            text="Of which task? These are the tasks of the workers that have started."
            if known
            else "No worker of this release has started here, so no task is known yet. You may name one all the same.",
            button="Next",
            back=visit.url("jobs"),
            destroys=False,
            fields=(Field(name="task", label="Task", options=[one.name for one in known], required=True),),
            noted=False,
        )
    check_name("task", task)
    found = next(iter(visit.queue.insight.known_tasks(task)), None)
    schema = _schema(found.arguments) if found is not None and found.arguments else {}
    return ActionQuestion(
        title=f"Enqueue a job of {task}",
        text="A worker runs it as soon as a slot is free."
        if found is not None
        else "No worker that has started runs this task: the job waits until one does.",
        button="Enqueue",
        back=visit.url("job-enqueue"),
        destroys=False,
        facts=(
            *((("Queue", found.queue),) if found is not None else ()),
            *parameters_of(schema),
        ),
        fields=(
            Field(
                name="arguments",
                label="Arguments",
                kind="area",
                hint="a JSON object, by the names of the parameters",
                value=msgspec.json.format(msgspec.json.encode(example_of(schema)), indent=2).decode(),
            ),
            Field(name="delay", label="Delay", hint=LENGTH),
            Field(name="unique_key", label="Unique key", hint="rejected if a live job has it"),
        ),
    )


def _do(visit: Visit) -> ActionResult:
    task = visit.request.args.get("task", "")
    if not task:
        task = check_name("task", visit.field("task"))
        return ActionResult(f"Task {task}: now its arguments.", visit.url("job-enqueue", task=task))
    try:
        handle = visit.queue.enqueue_named(
            task,
            _arguments(visit.field("arguments")),
            delay=_delay(visit.field("delay")),
            unique_key=visit.field("unique_key") or None,
            by=visit.by,
        )
    except (PayloadNotEncodable, PayloadTooLarge) as error:
        raise InvalidOption(str(error)) from error
    if handle.outcome is Outcome.REJECTED:
        return ActionResult(
            f"Not enqueued: job {handle.id} has the unique key.",
            visit.url("job", job_id=handle.id),
            well=False,
        )
    return ActionResult(f"Job {handle.id} is enqueued.", visit.url("job", job_id=handle.id))


def _schema(text: str) -> Mapping[str, Any]:
    found = msgspec.json.decode(text)
    return found if isinstance(found, dict) else {}


def _arguments(typed: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(typed or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidOption(f"arguments: {error}; write a JSON object") from None
    return found


def _delay(typed: str) -> float | None:
    try:
        return float(typed) if typed else None
    except ValueError:
        raise InvalidOption(f"delay={typed:.80}: give a number of {LENGTH}") from None


ACTIONS = (
    PageAction(
        name="job-enqueue",
        path="/jobs/enqueue",
        right=Right.ENQUEUE,
        ask=_ask,
        do=_do,
        under="jobs",
    ),
)
