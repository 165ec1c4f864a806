"""Which tasks a worker is told to run: what ``tasks=``, ``--tasks`` and ``--not-tasks`` say.

An entry is a name, or a pattern in which ``*`` stands for any characters; with ``!`` before it, those tasks are not run. Where only
excluding entries are given, all other tasks are run.
"""

from collections.abc import Iterable

import msgspec

from pgqueue.errors import InvalidOption
from pgqueue.values.jobs.options import EXCLUDES, check_name, stands_for


class ChosenTasks(msgspec.Struct, frozen=True):
    """Which tasks a worker runs, of those that it knows.

    Attributes:
        included: names and patterns; empty: all.
        excluded: names and patterns of those that it does not run.
    """

    included: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    @property
    def entries(self) -> list[str] | None:
        """The entries, as a worker's row shows them; None: it runs all that it knows."""
        return [*self.included, *(f"{EXCLUDES}{entry}" for entry in self.excluded)] or None

    def include(self, task: str) -> bool:
        """Whether a task is one of them."""
        if any(stands_for(entry, task) for entry in self.excluded):
            return False
        return not self.included or any(stands_for(entry, task) for entry in self.included)


ALL_TASKS = ChosenTasks()


def parse_chosen(given: Iterable[str] | None) -> ChosenTasks:
    """What ``tasks=`` says; None: all.

    Raises:
        InvalidOption: an entry is no name or pattern, two contradict each other, or there is none.
    """
    if given is None:
        return ALL_TASKS
    if isinstance(given, str):
        raise InvalidOption(f"tasks={given!r}: give a list of names, [{given!r}]")
    included: list[str] = []
    excluded: list[str] = []
    for entry in given:
        excludes = isinstance(entry, str) and entry.startswith(EXCLUDES)
        (excluded if excludes else included).append(check_name("task", entry[1:] if excludes else entry))
    if both := [entry for entry in included if entry in excluded]:
        raise InvalidOption(f"tasks: {both[0]} and !{both[0]} contradict each other; give one of them")
    if not included and not excluded:
        raise InvalidOption("tasks=[]: name at least one task, or None for all")
    return ChosenTasks(tuple(dict.fromkeys(included)), tuple(dict.fromkeys(excluded)))
