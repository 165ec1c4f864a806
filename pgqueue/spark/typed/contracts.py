"""Where readers find the contract of a task: in a database, or in a lake, which keeps those of its exports."""

from typing import TYPE_CHECKING

from pgqueue.errors import InvalidOption
from pgqueue.spark.typed.columns import TypedColumns, typed_columns
from pgqueue.store.connections.database import Database
from pgqueue.store.pipeline import contracts as plans
from pgqueue.values.hints import did_you_mean
from pgqueue.values.payloads.contract import TaskContract

if TYPE_CHECKING:
    from pgqueue.spark.lake.lake import Lake
    from pgqueue.spark.typed.kinds import Kind


def contracts(of: "Database | Lake") -> dict[str, TaskContract]:
    """The contract of each task: the one that a worker said last."""
    found: dict[str, TaskContract] = {}
    for one in all_contracts(of):
        found.setdefault(one.task, one)
    return found


def all_contracts(of: "Database | Lake", task: str | None = None) -> list[TaskContract]:
    """All contracts of all tasks, or of one; of each task first the one that was said last."""
    if isinstance(of, Database):
        return of.run(plans.listed(task))
    from pgqueue.spark.lake.contracts import contracts_in  # noqa: PLC0415 - PyArrow

    return [one for one in contracts_in(of) if task is None or one.task == task]


def contract(of: "Database | Lake", task: str, *, hash: str | None = None) -> TaskContract:  # noqa: A002 - its name
    """The contract of a task.

    Args:
        of: where it is stored.
        task: the task's name.
        hash: the beginning of the hash of an earlier one; None: the one that a worker said last.

    Raises:
        InvalidOption: no worker that has started has said it.
    """
    found = all_contracts(of, task)
    if not found:
        known = {one.task for one in all_contracts(of)}
        raise InvalidOption(
            f"no worker has published what task {task!r} takes{did_you_mean(task, known)}: a worker does when it starts"
        )
    chosen = [one for one in found if one.hash.startswith(hash or "")]
    if not chosen:
        raise InvalidOption(
            f"task {task!r} has no contract {hash!r}; it has {', '.join(one.hash for one in found)}"
        )
    return chosen[0]


def columns_of(one: TaskContract) -> TypedColumns:
    """The columns of the task's jobs."""
    return typed_columns(one.arguments, one.result)


def result_kind(of: "Database | Lake", task: str) -> "Kind | None":
    """What a task returns, by the contract that a worker said last; None: no worker has said it."""
    said = all_contracts(of, task)
    return columns_of(said[0]).result if said else None
