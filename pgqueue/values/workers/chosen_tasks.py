"""Which tasks a worker is told to run: what ``tasks=``, ``--tasks`` and ``--not-tasks`` say.

An entry is a name, or a pattern in which ``*`` stands for any characters; with ``!`` before it, those tasks are not run. Where only
excluding entries are given, all other tasks are run.
"""

from collections.abc import Collection, Iterable

import msgspec

from pgqueue.errors import InvalidOption
from pgqueue.values.flows.flow import BUILTIN
from pgqueue.values.hints import did_you_mean
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


def parse_chosen(given: Iterable[str] | None, *, known: Collection[str] | None) -> ChosenTasks:
    """What ``tasks=`` says.

    Args:
        given: names and patterns; None: all tasks.
        known: the registered tasks, of which each entry stands for one; None: others may be registered later.

    Raises:
        InvalidOption: an entry is no name or pattern, or stands for no task; two contradict each other, or there is none.
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
    for entry in () if known is None else (*included, *excluded):
        if not any(stands_for(entry, name) for name in known or ()):
            raise InvalidOption(
                f"tasks: {entry!r} stands for none of the app's tasks{did_you_mean(entry, known or ())}"
            )
    chosen = ChosenTasks(tuple(dict.fromkeys(included)), tuple(dict.fromkeys(excluded)))
    if known and not any(chosen.include(name) for name in known if name not in BUILTIN):
        raise InvalidOption(f"tasks={chosen.entries}: they leave no task of the app")
    return chosen
