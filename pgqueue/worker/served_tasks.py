"""Which tasks a worker runs, and which its claims leave to other workers.

A worker may know only some of the tasks of its queues: it runs another release, or was told to run some only. It finds out from a
job that it has claimed. The job goes back at once, unspent, with its place; and for a minute the worker's claims leave the task out,
so that the workers which run it have its jobs. Then it tries again: meanwhile the task may have been registered.
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
        self._not_chosen: Sequence[str] = ()
        self._seen = 0

    def may_run(self, name: str) -> bool:
        """Whether the worker runs a task of this name, once it is registered."""
        return _may_run(self.chosen, name)

    def is_left_out(self, name: str) -> bool:
        """Whether claims leave out a task that was found to be unknown."""
        return name in self._unknown.now()

    def leave_out(self, name: str) -> bool:
        """Leave an unknown task out of claims for a minute; False: too many are left out, or the name is too long."""
        if len(name) > LONGEST_NAME or len(self._unknown.now()) >= MOST_LEFT_OUT:
            return False
        self._unknown.add(name, None)
        return True

    def try_again(self, name: str) -> None:
        """Have claims take jobs of an unknown task again: one of them was given up, and so are the others."""
        self._unknown.remove(name)

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
        if not _may_run(self._chosen, name):
            raise KeyError(name)
        return self._registered[name]

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in [*self._registered] if _may_run(self._chosen, name)])

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _may_run(chosen: ChosenTasks, name: str) -> bool:
    return name in BUILTIN or chosen.include(name)  # jobs of flows wait for those of pgqueue's own
