"""What the keys of ``pgqueue top`` do: an action asks one question, does one thing, and says what it has done."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.output import spelled_out
from pgqueue.cli.top.snapshot import Snapshot
from pgqueue.values.jobs.job import JobState
from pgqueue.values.workers.worker import Steered

KEYS: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("queues", "p"): "pause or resume",
        ("queues", "d"): "drain or take new jobs again",
        ("queues", "r"): "retry its dead jobs",
        ("tasks", "r"): "retry its dead jobs",
        ("workers", "d"): "drain or claim again",
        ("jobs", "c"): "cancel",
    }
)
"""What a key does in a table."""


@dataclass(frozen=True)
class KeyAction:
    """What a key would do.

    Attributes:
        question: what the user is asked before.
        act: does it, and returns a sentence that says what was done.
    """

    question: str
    act: Callable[[], str]


def action(queue: PgQueue, found: Snapshot, table: str, key: str, row: str) -> KeyAction | None:
    """What a key does with a row; None: nothing.

    Args:
        queue: where.
        found: what the user sees.
        table: in which table the row is: ``queues``, ``tasks``, ``workers`` or ``jobs``.
        key: which key was pressed.
        row: the queue's or the task's name, the worker's or the job's id.
    """
    match table, key:
        case "queues", "p":
            return _pause(queue, found, row)
        case "queues", "d":
            return _drain(queue, found, row)
        case (("queues" | "tasks"), "r") if row:
            return _retry(queue, table, row)
        case "workers", "d":
            return _drain_worker(queue, found, row)
        case "jobs", "c":
            return KeyAction(f"Cancel job {row}?", lambda: _describe_cancel(row, queue.cancel(int(row))))
    return None


def _pause(queue: PgQueue, found: Snapshot, name: str) -> KeyAction:
    shown = spelled_out(name)
    if any(one.paused_at for one in found.queues if one.queue == name):
        return KeyAction(
            f"Resume queue {shown}?",
            lambda: (
                f"queue {shown} is resumed" if queue.control.resume(name) else f"queue {shown} was not paused"
            ),
        )
    return KeyAction(
        f"Pause queue {shown}? No worker claims its jobs then.",
        lambda: (
            f"queue {shown} is paused" if queue.control.pause(name) else f"queue {shown} was paused already"
        ),
    )


def _drain(queue: PgQueue, found: Snapshot, name: str) -> KeyAction:
    shown = spelled_out(name)
    if any(one.drained_at for one in found.queues if one.queue == name):
        return KeyAction(
            f"Let queue {shown} take new jobs again?",
            lambda: (
                f"queue {shown} takes new jobs"
                if queue.control.resume(name)
                else f"queue {shown} was not drained"
            ),
        )
    return KeyAction(
        f"Drain queue {shown}? Enqueues to it are refused then.",
        lambda: (
            f"queue {shown} is drained" if queue.control.drain(name) else f"queue {shown} was drained already"
        ),
    )


def _retry(queue: PgQueue, table: str, name: str) -> KeyAction | None:
    dead = queue.control.dead(queue=name) if table == "queues" else queue.control.dead(task=name)
    count = dead.preview().count
    if not count:
        return None
    of = f"{table[:-1]} {spelled_out(name)}"
    return KeyAction(
        f"Retry the {count:,} dead jobs of {of}?", lambda: f"{dead.retry().done:,} jobs of {of} are retried"
    )


def _drain_worker(queue: PgQueue, found: Snapshot, worker: str) -> KeyAction | None:
    one = next((one for one in found.workers if str(one.id) == worker), None)
    if one is None:
        return None
    if one.draining or one.asked.draining:
        return KeyAction(
            f"Let worker {one} claim jobs again?", lambda: _describe_request(queue.workers.resume(worker))
        )
    return KeyAction(
        f"Drain worker {one}? It ends its jobs and claims no more.",
        lambda: _describe_request(queue.workers.drain(worker)),
    )


def _describe_request(steered: Steered) -> str:
    return "; ".join([*(f"worker {one} was asked" for one in steered.asked), *steered.refused])


def _describe_cancel(job: str, state: JobState | None) -> str:
    if state is None:
        return f"job {job} has ended"
    return (
        f"the worker of job {job} was asked to stop it"
        if state is JobState.RUNNING
        else f"job {job} is cancelled"
    )
