"""What is done with one job besides its start and its end: a signal to it, another priority, queue or time, a copy of it."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from pgqueue.dashboard.access import Right
from pgqueue.dashboard.page import ActionQuestion, ActionResult, Field, PageAction, Visit
from pgqueue.dashboard.pages.job_story import WAITING
from pgqueue.errors import InvalidOption, PayloadNotEncodable, PayloadTooLarge, SignalRefused
from pgqueue.values.insight.why import Why
from pgqueue.values.jobs.job import Job, JobState
from pgqueue.values.payloads.storable import require_args
from pgqueue.values.signals import check_signal

PATH: Final = "/jobs/<int:job_id>"
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}")
GONE: Final = "was not changed: its state had changed before."


class AwaitedSignal(NamedTuple):
    """A signal for which a job waits: its name, and what it is sent to: ``job:ID``, ``flow:ID`` or ``key:TEXT``."""

    name: str
    target: str

    @property
    def _signal_target(self) -> str:
        return self.target


def awaited_signals(why: Why) -> list[AwaitedSignal]:
    """The signals for which a job waits."""
    found = []
    for reason in why.evidence.get("waits_for", ()):
        kind, _, rest = reason.partition(":")
        target, _, name = rest.rpartition(":")
        if kind == "signal" and target:
            found.append(AwaitedSignal(name, target))
    return found


def _priority_field(job: Job) -> Field:
    return Field(
        name="priority",
        label="Priority",
        kind="number",
        value=str(job.priority),
        hint="-100…100, higher runs sooner",
        required=True,
    )


def _facts(job: Job) -> tuple[tuple[str, object], ...]:
    return (("Task", job.task), ("Queue", job.queue), ("State", str(job.state)))


def _ask_signal(visit: Visit, *, job_id: int) -> ActionQuestion:
    job = visit.queue.job(job_id)
    waits = [] if job.state.ended else awaited_signals(visit.queue.why(job_id))
    first = waits[0] if waits else None
    text = "The job goes on with the payload. Of signals with the same name only the first counts."
    return ActionQuestion(
        title=f"Send a signal to job {job_id}?",
        text=text if first else "It waits for no signal now.",
        button="Send",
        back=visit.url("job", job_id=job_id),
        destroys=False,
        facts=_facts(job),
        fields=(
            Field(
                name="name",
                label="Signal",
                value="" if first is None else first.name,
                options=[one.name for one in waits],
                required=True,
            ),
            Field(
                name="payload", label="Payload", kind="area", hint="JSON, which the task gets; empty: null"
            ),
        ),
        possible=first is not None,
    )


def _signal(visit: Visit, *, job_id: int) -> ActionResult:
    page, name = visit.url("job", job_id=job_id), check_signal(visit.field("name"))
    payload = _json(visit.field("payload"))
    waits = [one for one in awaited_signals(visit.queue.why(job_id)) if one.name == name]
    if not waits:
        return ActionResult(
            f"Job {job_id} does not wait for signal {name!r}: nothing was sent.", page, well=False
        )
    try:
        first = visit.queue.signal(waits[0], name, payload, by=visit.by)
    except (SignalRefused, PayloadNotEncodable, PayloadTooLarge) as error:
        raise InvalidOption(str(error)) from error
    if first:
        return ActionResult(f"Signal {name!r} was sent.", page)
    return ActionResult(f"Signal {name!r} had been sent before: its first payload stays.", page, well=False)


def _json(typed: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return msgspec.json.decode(typed) if typed else None
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidOption(f"payload: {error}; write JSON") from None


def _ask_change(visit: Visit, *, job_id: int) -> ActionQuestion:
    job = visit.queue.job(job_id)
    possible = job.state in WAITING
    timed = job.state in {JobState.READY, JobState.SCHEDULED}
    at = Field(
        name="run_at",
        label="Due",
        value=_iso(job.run_at),
        hint="in ISO 8601 with a time zone; an instant that has passed makes it ready",
    )
    return ActionQuestion(
        title=f"Change job {job_id}?",
        text="What you leave as it is stays." if possible else f"It is {job.state}, so it cannot be changed.",
        button="Change",
        back=visit.url("job", job_id=job_id),
        destroys=False,
        facts=_facts(job),
        fields=(
            _priority_field(job),
            Field(name="queue", label="Queue", value=job.queue, required=True),
            *([at] if timed else []),
        ),
        possible=possible,
    )


def _change(visit: Visit, *, job_id: int) -> ActionResult:
    job, page = visit.queue.job(job_id), visit.url("job", job_id=job_id)
    chosen, done, tried = visit.queue.control.jobs(ids=[job_id]), [], 0
    priority, queue, at = (
        _priority(visit.field("priority")),
        visit.field("queue"),
        _instant(visit.field("run_at")),
    )
    steps: list[tuple[bool, str, Callable[[], object]]] = [
        (
            priority != job.priority,
            f"priority {priority}",
            lambda: chosen.reprioritise(priority, by=visit.by).done,
        ),
        (queue != job.queue, f"queue {queue}", lambda: chosen.move(queue, by=visit.by).done),
        (
            at is not None and _iso(at) != _iso(job.run_at),
            f"due {'' if at is None else _iso(at)}",
            lambda: at is not None and visit.queue.control.reschedule(job_id, at, by=visit.by),
        ),
    ]
    for differs, said, do in steps:
        if differs:
            tried += 1
            done += [said] if do() else []
    if not tried:
        return ActionResult(f"Job {job_id} stays as it is.", page)
    if len(done) < tried:
        kept = f": {', '.join(done)}; the rest" if done else ""
        return ActionResult(f"Job {job_id}{kept} {GONE}", page, well=False)
    return ActionResult(f"Job {job_id} has {', '.join(done)} now.", page)


def _priority(typed: str) -> int:
    if not _NUMBER.fullmatch(typed):
        raise InvalidOption("priority: give a whole number, -100…100")
    return int(typed)


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds")


def _instant(typed: str) -> datetime | None:
    if not typed:
        return None
    try:
        return datetime.fromisoformat(typed)
    except ValueError:
        raise InvalidOption(
            f"due={typed:.80}: write an instant in ISO 8601 with a time zone, such as {_iso(datetime.now(UTC))}"
        ) from None


def _ask_copy(visit: Visit, *, job_id: int) -> ActionQuestion:
    job = visit.queue.job(job_id)
    wrong, hides = _why_not(job), _has_secrets(visit, job)
    arguments = msgspec.json.format(msgspec.json.encode(job.args), indent=2).decode()
    area = Field(name="arguments", label="Arguments", kind="area", value=arguments, hint="a JSON object")
    text = f"A new job of {job.task} with the same arguments. Job {job_id} stays as it is."
    if hides:
        text += " Some of its arguments are secret, so they are not shown here; the copy has all of them."
    return ActionQuestion(
        title=f"Enqueue a copy of job {job_id}?",
        text=wrong or text,
        button="Enqueue",
        back=visit.url("job", job_id=job_id),
        destroys=False,
        facts=(("Task", job.task), ("Unique key", "none: the copy runs beside a job that has one")),
        fields=(
            *([] if hides else [area]),
            Field(name="queue", label="Queue", value=job.queue, required=True),
            _priority_field(job),
            Field(name="delay", label="Delay", hint="seconds, from now on"),
        ),
        possible=wrong is None,
    )


def _has_secrets(visit: Visit, job: Job) -> bool:
    """Whether some of the arguments are hidden."""
    return bool(visit.redaction.value(job.args) != job.args)


def _why_not(job: Job) -> str | None:
    try:
        require_args(job)
    except InvalidOption as error:
        return f"It cannot be copied. {error}."
    return None


def _copy(visit: Visit, *, job_id: int) -> ActionResult:
    found, typed = visit.queue.job(job_id), visit.field("arguments")
    arguments = None if _has_secrets(visit, found) or not typed else _json(typed)
    if arguments is not None and not isinstance(arguments, dict):
        raise InvalidOption("arguments: write a JSON object")
    try:
        handle = visit.queue.enqueue_copy(
            job_id,
            arguments,
            by=visit.by,
            queue=visit.field("queue") or found.queue,
            priority=_priority(visit.field("priority")),
            delay=_delay(visit.field("delay")),
        )
    except (PayloadNotEncodable, PayloadTooLarge) as error:
        raise InvalidOption(str(error)) from error
    return ActionResult(
        f"Job {handle.id} is enqueued, a copy of job {job_id}.", visit.url("job", job_id=handle.id)
    )


def _delay(typed: str) -> float | None:
    try:
        return float(typed) if typed else None
    except ValueError:
        raise InvalidOption(f"delay={typed:.80}: give a number of seconds, from now on") from None


def _action(
    name: str, right: Right, ask: Callable[..., ActionQuestion], do: Callable[..., ActionResult]
) -> PageAction:
    return PageAction(name=f"job-{name}", path=f"{PATH}/{name}", right=right, ask=ask, do=do, under="jobs")


ACTIONS = (
    _action("signal", Right.ENQUEUE, _ask_signal, _signal),
    _action("change", Right.MOVE, _ask_change, _change),
    _action("copy", Right.ENQUEUE, _ask_copy, _copy),
)
