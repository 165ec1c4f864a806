"""Which tasks a worker runs, and which its claims leave to other workers.

A worker may know only some of the tasks of its queues: it runs another release, or was told to run some only. It finds out from a
job that it has claimed. The job goes back at once, unspent, with its place; and for a minute the worker's claims leave the task out,
so that the workers which run it have its jobs. Then it tries again: meanwhile the task may have been registered.

A claim of a job under a rate would use up a start of the rate, so such a job is put back by the claim itself, before it is committed.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pgqueue.app.task import Task
from pgqueue.store.jobs.refusals import PassedOver
from pgqueue.values.flows.flow import BUILTIN
from pgqueue.values.jobs.options import LONGEST_NAME
from pgqueue.values.workers.chosen_tasks import ALL_TASKS, ChosenTasks

MOST_LEFT_OUT = 500
"""Unknown tasks that a claim leaves out, at most: each name is compared with each job that it looks at."""

Tasks = Mapping[str, Task[..., Any]]


class ServedTasks:
    """The tasks of one worker.

    Attributes:
        known: those that it runs, by name: the registered ones that are chosen, as they are now.
        chosen: which it was told to run.
    """

    def __init__(
        self,
        registered: Tasks,
        chosen: ChosenTasks = ALL_TASKS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``registered`` may grow."""
        self.known = registered if chosen is ALL_TASKS else _Chosen(registered, chosen)
        self.chosen = chosen
        self._registered = registered
        self._unknown = PassedOver[str, None](clock)
        self._claimed: set[str] = set()
        self._not_chosen: Sequence[str] = ()
        self._seen = 0

    def may_run(self, name: str) -> bool:
        """Whether the worker runs a task of this name, once it is registered."""
        return _may_run(self._registered, self.chosen, name)

    def is_left_out(self, name: str) -> bool:
        """Whether claims leave out a task that was found to be unknown."""
        return name in self._unknown.now()

    def leave_out(self, name: str) -> bool:
        """Leave an unknown task out of claims for a minute; False: too many are left out, or the name is too long."""
        if len(name) > LONGEST_NAME or len(self._unknown.now()) >= MOST_LEFT_OUT:
            return False
        self._unknown.add(name, None)
        self._claimed.discard(name)
        return True

    def try_again(self, name: str) -> None:
        """Have claims take jobs of an unknown task again: it was loaded, or its jobs have waited for so long that they are given up."""
        self._unknown.remove(name)
        self._claimed.add(name)

    def is_unknown(self, name: str) -> bool:
        """Whether the worker does not run a task and can leave it out, and is not to claim its jobs to give them up."""
        if name in self.known or name in self._claimed:
            return False
        left_out = self._unknown.now()
        return name in left_out or (len(left_out) < MOST_LEFT_OUT and len(name) <= LONGEST_NAME)

    def unknown(self) -> list[str]:
        """The tasks that were found to be unknown in the last minute, and may be registered yet."""
        return [name for name in self._unknown.now() if name not in self.known and self.may_run(name)]

    def not_chosen(self) -> Sequence[str]:
        """The registered tasks that the worker was told not to run."""
        if self.chosen is not ALL_TASKS and len(self._registered) != self._seen:
            names = [*self._registered]
            self._not_chosen, self._seen = [name for name in names if not self.may_run(name)], len(names)
        return self._not_chosen

    def left_out(self) -> list[str]:
        """The tasks whose jobs a claim leaves to other workers."""
        return [*self.not_chosen(), *(name for name in self._unknown.now() if name not in self.known)]


class _Chosen(Mapping[str, Task[..., Any]]):
    """Those of the registered tasks that are chosen."""

    def __init__(self, registered: Tasks, chosen: ChosenTasks) -> None:
        self._registered = registered
        self._chosen = chosen

    def __getitem__(self, name: str) -> Task[..., Any]:
        if not _may_run(self._registered, self._chosen, name):
            raise KeyError(name)
        return self._registered[name]

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in [*self._registered] if _may_run(self._registered, self._chosen, name)])

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _may_run(registered: Tasks, chosen: ChosenTasks, name: str) -> bool:
    task = registered.get(name)  # under one of its former names, perhaps
    # Jobs of flows wait for those of pgqueue's own tasks.
    return name in BUILTIN or chosen.include(name if task is None else task.name)
