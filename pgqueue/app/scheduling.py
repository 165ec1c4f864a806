"""Where schedules are declared: ``@queue.schedule``. :mod:`pgqueue.app.schedules` stores and steers them.

The modules of schedules, and of what operators do to queues, are imported when a program first uses one.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

from pgqueue.app.registry import Registry
from pgqueue.app.task import Task
from pgqueue.errors import InvalidOption

if TYPE_CHECKING:
    from pgqueue.app.declaring import Declared, Declares, TimingOptions
    from pgqueue.app.queue_control import QueueControl
    from pgqueue.app.schedules import Schedules
    from pgqueue.app.workers import Workers


class Scheduling(Registry):
    """The schedules of a queue."""

    _declared: "dict[str, Declared]"

    @cached_property
    def control(self) -> "QueueControl":
        """The queues as operators see them: settings, drain, move, purge."""
        from pgqueue.app.queue_control import QueueControl  # noqa: PLC0415 - see the module's docstring

        return QueueControl(self)

    @cached_property
    def schedules(self) -> "Schedules":
        """The stored schedules: add, find, pause, fire."""
        from pgqueue.app.schedules import Schedules  # noqa: PLC0415 - see the module's docstring

        return Schedules(self, self._declared)

    @cached_property
    def workers(self) -> "Workers":
        """The workers that are known: look at them, and ask them to do something."""
        from pgqueue.app.workers import Workers  # noqa: PLC0415 - see the module's docstring

        return Workers(self)

    def schedule(
        self,
        cron: str | None = None,
        /,
        *,
        name: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        **timing: Unpack["TimingOptions"],
    ) -> "Declares":
        """Declare a schedule of a task, or of a function that becomes one; a worker that starts stores it.

        Args:
            cron: an expression of 5 fields, of 6 with seconds first, or ``@daily`` and its like; or give ``every`` or
                ``at``.
            name: what the schedule is called; the task's name by default.
            arguments: those of each job, by parameter.

        Returns:
            A decorator, which returns the task.

        Raises:
            InvalidOption: an option makes no sense, or the name is declared already.
        """
        from pgqueue.app.declaring import Declared, timing_of  # noqa: PLC0415 - see the module's docstring
        from pgqueue.values.schedule import check_schedule_name  # noqa: PLC0415

        when = timing_of(cron, timing)

        def declare(decorated: Any) -> Any:  # noqa: ANN401 - as Declares says
            task: Task[..., Any] = decorated if isinstance(decorated, Task) else self.task(decorated)
            chosen = check_schedule_name(task.name if name is None else name)
            if chosen in self._declared:
                raise InvalidOption(
                    f"schedule {chosen!r} is declared twice, for {self._declared[chosen].task.name} and {task.name}; "
                    "give one of the two another name: schedule(..., name=...)"
                )
            self._declared[chosen] = Declared(chosen, task, arguments or {}, when)
            return task

        return declare
