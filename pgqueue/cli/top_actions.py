"""What the keys of ``pgqueue top`` do: each asks one question, does one thing, and says what it has done."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.top_snapshot import Snapshot
from pgqueue.values.jobs.job import JobState
from pgqueue.values.payloads.storable import spelled_out
from pgqueue.values.workers.worker import Steered

KEYS: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("queues", "p"): "pause or resume",
        ("queues", "x"): "close, or take new jobs again",
        ("queues", "r"): "retry its dead jobs",
        ("tasks", "r"): "retry its dead jobs",
        ("workers", "x"): "make quiet, or claim again",
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
        case "queues", "x":
            return _close(queue, found, row)
        case (("queues" | "tasks"), "r") if row:
            return _retry(queue, table, row)
        case "workers", "x":
            return _make_quiet(queue, found, row)
        case "jobs", "c":
            return KeyAction(f"Cancel job {row}?", lambda: _describe_cancel(row, queue.cancel(int(row))))
    return None


def _pause(queue: PgQueue, found: Snapshot, name: str) -> KeyAction:
    control = queue.control
    if any(one.paused_at for one in found.queues if one.queue == name):
        return _on_queue(
            name, "Resume queue {}?", control.resume, "is resumed", "was neither paused nor closed"
        )
    question = "Pause queue {}? No worker claims its jobs then."
    return _on_queue(name, question, control.pause, "is paused", "was paused already")


def _close(queue: PgQueue, found: Snapshot, name: str) -> KeyAction:
    control = queue.control
    if any(one.closed_at for one in found.queues if one.queue == name):
        question = "Let queue {} take new jobs again?"
        return _on_queue(name, question, control.resume, "takes new jobs", "was not closed")
    question = "Close queue {}? Enqueues to it are refused then."
    return _on_queue(name, question, control.close, "is closed", "was closed already")


def _on_queue(name: str, question: str, act: Callable[[str], bool], done: str, not_done: str) -> KeyAction:
    shown = spelled_out(name)
    return KeyAction(question.format(shown), lambda: f"queue {shown} {done if act(name) else not_done}")


def _retry(queue: PgQueue, table: str, name: str) -> KeyAction | None:
    dead = queue.control.dead(queue=name) if table == "queues" else queue.control.dead(task=name)
    count = dead.preview().count
    if not count:
        return None
    of = f"{table[:-1]} {spelled_out(name)}"
    return KeyAction(
        f"Retry the {count:,} dead jobs of {of}?", lambda: f"{dead.retry().done:,} jobs of {of} are retried"
    )


def _make_quiet(queue: PgQueue, found: Snapshot, worker: str) -> KeyAction | None:
    one = next((one for one in found.workers if str(one.id) == worker), None)
    if one is None:
        return None
    if one.quiet or one.asked.quiet:
        return KeyAction(
            f"Let worker {one} claim jobs again?", lambda: _describe_request(queue.workers.resume(worker))
        )
    return KeyAction(
        f"Make worker {one} quiet? It ends its jobs and claims no more.",
        lambda: _describe_request(queue.workers.quiet(worker)),
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
