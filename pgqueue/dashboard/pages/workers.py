"""The workers: what each runs and since when, its slots and health; they are asked to drain, stop, restart, change slots."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from pgqueue.dashboard.access import Right
from pgqueue.dashboard.page import ActionQuestion, ActionResult, Content, Field, Page, PageAction, Visit
from pgqueue.errors import InvalidOption
from pgqueue.values.insight.now import RunningJob
from pgqueue.values.workers.load import read_bounds
from pgqueue.values.workers.worker import ALL, Steered, WorkerStatus

PATH: Final = "/workers/<which>"
RUNNING: Final = 1_000
"""Running jobs that the page knows."""
SHOWN: Final = 20
"""Running jobs that are shown of a worker."""


def read(visit: Visit) -> Content:
    """All workers, the live ones first."""
    known = sorted(visit.queue.workers.list(), key=lambda one: (not one.alive, one.name, one.started_at))
    running = visit.queue.insight.running(limit=RUNNING)
    workers = [_held(one, [job for job in running.jobs if job.worker_id == one.id]) for one in known]
    return {
        "workers": workers,
        "lost": [job for job in running.jobs if job.lost],
        "complete": running.complete,
        "alive": sum(one.alive for one in known),
        "slots": sum(one.slots for one in known if one.alive),
        "busy": sum(one["busy"] for one in workers),
        "claimed": sum(one["claimed"] for one in workers),
    }


def _held(worker: WorkerStatus, jobs: Sequence[RunningJob]) -> dict[str, Any]:
    """A worker and its jobs. A job waits for a slot only while all are taken, so those beyond the slots are claimed and do not run."""
    busy = min(len(jobs), worker.slots)
    return {
        "worker": worker,
        "state": worker.state,
        "name": worker.name,
        "busy": busy,
        "claimed": len(jobs) - busy,
        "jobs": jobs[:SHOWN],
        "more": max(0, len(jobs) - SHOWN),
    }


def _ask(
    visit: Visit, *, which: str, verb: str, text: str, destroys: bool = False, fields: tuple[Field, ...] = ()
) -> ActionQuestion:
    meant = _named_workers(visit, which)
    return ActionQuestion(
        title=f"{verb} {'every live worker' if which == ALL else meant[0].name}?",
        text=text if meant else "No worker is alive.",
        button=verb,
        back=visit.url("workers"),
        destroys=destroys,
        fields=fields,
        groups=(
            ("Worker", "State", "Slots", "Queues"),
            [
                (str(one), one.state, one.slots, "all" if one.queues is None else ", ".join(one.queues))
                for one in meant
            ],
        ),
        possible=bool(meant),
    )


def _do(visit: Visit, *, which: str, ask: Callable[[Visit, str], Steered], done: str) -> ActionResult:
    steered = ask(visit, which)
    words = [
        f"{len(steered.asked)} worker{'' if len(steered.asked) == 1 else 's'} asked to {done}",
        *steered.refused,
    ]
    return ActionResult(
        "; ".join(words) + ".", visit.url("workers"), well=bool(steered.asked) and not steered.refused
    )


def _named_workers(visit: Visit, which: str) -> list[WorkerStatus]:
    if which == ALL:
        return [one for one in visit.queue.workers.list() if one.alive]
    return [visit.queue.workers.get(which)]


def _set(visit: Visit, which: str) -> Steered:
    bounds = read_bounds(visit.field("slots"))
    if bounds is None:
        raise InvalidOption("slots: write a number, or a minimum and a maximum such as 5-50")
    return visit.queue.workers.set(which, concurrency=(bounds.minimum, bounds.maximum), by=visit.by)


def _action(
    name: str,
    ask: Callable[[Visit, str], Steered],
    done: str,
    text: str,
    *,
    destroys: bool = False,
    fields: tuple[Field, ...] = (),
) -> PageAction:
    verb = "Change slots of" if name == "set" else name.capitalize()
    return PageAction(
        name=f"worker-{name}",
        path=f"{PATH}/{name}",
        right=Right.STEER,
        ask=partial(_ask, verb=verb, text=text, destroys=destroys, fields=fields),
        do=partial(_do, ask=ask, done=done),
        under="workers",
    )


PAGE = Page(name="workers", path="/workers", title="Workers", read=read, place=50)
ACTIONS = (
    _action(
        "drain",
        lambda visit, which: visit.queue.workers.drain(which, by=visit.by),
        "drain",
        "It claims no more jobs, finishes those that run, and stays.",
    ),
    _action(
        "resume",
        lambda visit, which: visit.queue.workers.resume(which, by=visit.by),
        "claim jobs again",
        "It claims jobs again.",
    ),
    _action(
        "set",
        _set,
        "change its slots",
        "It runs this many jobs at a time. No attempt is cut short.",
        fields=(
            Field(
                name="slots", label="Slots", hint="a number, or a minimum and a maximum: 5-50", required=True
            ),
        ),
    ),
    _action(
        "stop",
        lambda visit, which: visit.queue.workers.stop(which, by=visit.by),
        "stop",
        "It finishes or returns its jobs and ends. Its supervisor does not start another.",
        destroys=True,
    ),
    _action(
        "restart",
        lambda visit, which: visit.queue.workers.restart(which, by=visit.by),
        "restart",
        "It finishes or returns its jobs and ends; its supervisor starts a new process.",
    ),
)
