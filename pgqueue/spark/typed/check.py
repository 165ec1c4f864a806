"""Holds the tasks of an app against the contracts that workers of the release before have published."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pgqueue.app.named import contracts_of
from pgqueue.app.task import Task
from pgqueue.spark.typed.contracts import contracts
from pgqueue.store.connections.database import Database
from pgqueue.store.pipeline import contracts as plans
from pgqueue.values.payloads.contract_changes import ContractChange, contract_changes

if TYPE_CHECKING:
    from pgqueue.spark.lake.lake import Lake

WITHOUT: Final = frozenset({"added", "required"})
"""Changes that concern the jobs that do not have the argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractCheck:
    """The result of a comparison.

    Attributes:
        compared: how many tasks were compared.
        changes: what has changed, those that break first.
        new: tasks of the app of which no worker has published a contract.
        absent: tasks with a contract that the app does not have: another app's, or removed.
        unknown: tasks of the app whose types have no schema that can be stored.
        accepted: tasks whose changes were accepted.
    """

    compared: int
    changes: Sequence[ContractChange]
    new: Sequence[str]
    absent: Sequence[str]
    unknown: Sequence[str]
    accepted: Sequence[str]

    @property
    def breaking(self) -> list[ContractChange]:
        """The changes that break jobs in flight or readers, and were not accepted."""
        return [one for one in self.changes if one.breaks and one.task not in self.accepted]


def check_contracts(
    of: "Database | Lake", tasks: Mapping[str, Task[..., Any]], *, accept: Collection[str] = ()
) -> ContractCheck:
    """Compare an app's tasks with the last contract of each; nothing is stored.

    Args:
        of: where the contracts are. In a database, the live jobs in the old form are counted, too.
        tasks: the app's tasks, by name.
        accept: names of tasks whose breaks are meant.

    Raises:
        DatabaseError: the database cannot be reached, or the role may not read contracts or jobs.
        LakeError: there is no lake.
    """
    stored, own = contracts(of), contracts_of(tasks)
    changes: list[ContractChange] = []
    both = [name for name, one in own.items() if one is not None and name in stored]
    for name in both:
        now = own[name]
        assert now is not None  # noqa: S101 - for the type checker
        changes += contract_changes(stored[name], now)
    if isinstance(of, Database):
        changes = _counted(of, changes)
    return ContractCheck(
        compared=len(both),
        changes=sorted(changes, key=lambda one: (not one.breaks, one.task)),
        new=[name for name, one in own.items() if one is not None and name not in stored],
        absent=sorted(stored.keys() - own.keys()),
        unknown=[name for name, one in own.items() if one is None],
        accepted=sorted(accept),
    )


def _counted(database: Database, changes: Sequence[ContractChange]) -> list[ContractChange]:
    """The changes, with the number of live jobs that each breaking one of an argument concerns."""
    counted = [one for one in changes if one.breaks and one.argument is not None]
    if not counted:
        return [*changes]
    asked = [(one.task, one.argument, one.what not in WITHOUT) for one in counted]
    jobs = dict(zip(counted, database.run(plans.jobs_with(asked)), strict=True))
    return [replace(one, jobs=jobs.get(one)) for one in changes]
