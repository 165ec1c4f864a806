"""The workers, and one of them: what each runs and since when, its slots and health; they are asked to be quiet, stop, restart, change slots."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from pgqueue.dashboard.access import Right
from pgqueue.dashboard.page import ActionQuestion, ActionResult, Content, Field, Page, PageAction, Visit
from pgqueue.dashboard.tables import FEW, Table
from pgqueue.errors import InvalidOption, NotGranted
from pgqueue.values.insight.health import Problem
from pgqueue.values.insight.now import Running, RunningJob
from pgqueue.values.workers.load import read_bounds
from pgqueue.values.workers.worker import ALL, Steered, WorkerStatus

PATH: Final = "/workers/<which>"
RUNNING: Final = 10_000
"""Running jobs that the page knows."""
SHOWN: Final = 20
"""Running jobs that are shown of a worker."""
TROUBLED: Final = ("lost", "unresponsive", "stalled", "stopping", "quiet", "alive")
"""The states of workers, those first that a person has to see."""
STATES: Final = {state: (lambda row, state=state: row["state"] == state) for state in reversed(TROUBLED)}
SORTS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "state": lambda row: (TROUBLED.index(row["state"]), row["name"]),
    "name": lambda row: row["name"],
    "busy": lambda row: (-row["busy"] / max(1, row["worker"].slots), row["name"]),
    "claimed": lambda row: (-row["claimed"], row["name"]),
    "since": lambda row: row["worker"].started_at,
}


def read(visit: Visit) -> Content:
    """All workers, those with a trouble first."""
    rows, running = _rows(visit, visit.queue.workers.list())
    table = Table(
        visit, rows, name=lambda row: f"{row['name']} {row['worker'].id}", states=STATES, sorts=SORTS
    )
    alive = [row["worker"] for row in rows if row["worker"].alive]
    return {
        "workers": table.rows if visit.endpoint == "workers" else table.all,
        "lost": [job for job in running.jobs if job.lost],
        "complete": running.complete and len(running.jobs) < RUNNING,
        "alive": len(alive),
        "slots": sum(one.slots for one in alive),
        "busy": sum(row["busy"] for row in rows),
        "claimed": sum(row["claimed"] for row in rows),
        **(
            {"table": table, "few": FEW, "were_lost": _were_lost(visit)}
            if visit.endpoint == "workers"
            else {}
        ),
    }


def _were_lost(visit: Visit) -> list[Problem]:
    """What the first page says of workers that a sweep has removed: it leads here, where no row of them is left."""
    try:
        problems = visit.look_for_workers.health.problems
    except NotGranted:
        return []
    return [one for one in problems if one.kind == "worker lost"]


def read_one(visit: Visit, *, which: str) -> Content:
    """One worker, and what it runs."""
    ((row,), _) = _rows(visit, [visit.queue.workers.get(which)])
    return {"one": row}


def _rows(visit: Visit, known: Sequence[WorkerStatus]) -> tuple[list[dict[str, Any]], Running]:
    running = visit.queue.insight.running(limit=RUNNING)
    held: dict[object, list[RunningJob]] = {}
    for job in running.jobs:
        held.setdefault(job.worker_id, []).append(job)
    return [_held(one, held.get(one.id, ())) for one in known], running


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
    visit: Visit,
    *,
    which: str,
    verb: str,
    button: str,
    text: str,
    destroys: bool = False,
    fields: tuple[Field, ...] = (),
) -> ActionQuestion:
    meant = _named_workers(visit, which)
    return ActionQuestion(
        title=verb.format("every live worker" if which == ALL else meant[0].name),
        text=text if meant else "No worker is alive.",
        button=button,
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
        affected="Affected workers",
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
    button = {"set": "Change slots", "quiet": "Make quiet"}.get(name, name.capitalize())
    verb = {"set": "Change the slots of {}?", "quiet": "Make {} quiet?"}.get(name, f"{button} {{}}?")
    return PageAction(
        name=f"worker-{name}",
        path=f"{PATH}/{name}",
        right=Right.STEER,
        ask=partial(_ask, verb=verb, button=button, text=text, destroys=destroys, fields=fields),
        do=partial(_do, ask=ask, done=done),
        under="workers",
    )


PAGES = (
    Page(name="workers", path="/workers", title="Workers", read=read, place=50),
    Page(name="worker", path=PATH, title="Worker", read=read_one, under="workers"),
)
ACTIONS = (
    _action(
        "quiet",
        lambda visit, which: visit.queue.workers.quiet(which, by=visit.by),
        "be quiet",
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
