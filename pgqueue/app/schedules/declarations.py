"""Where schedules and alerts are declared: ``@queue.schedule``, ``@queue.alert``. Both are methods of :class:`pgqueue.app.pgqueue.PgQueue`.

:mod:`pgqueue.app.schedules.schedules` and :mod:`pgqueue.app.alerts` store and steer them, and are imported when a program first uses one.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from pgqueue.app.registry import Registry
from pgqueue.app.task import Task
from pgqueue.errors import Duration, InvalidOption

if TYPE_CHECKING:
    from pgqueue.app.decorators import ScheduleDecorator
    from pgqueue.app.schedules.declared_schedules import TimingOptions
    from pgqueue.values.alerts.alert import Alert, Rule

T = TypeVar("T", bound="Task[[Alert], Any]")


def schedule(  # noqa: D417 - a method of the queue
    self: Registry,
    cron: str | None = None,
    /,
    *,
    name: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    **timing: Unpack["TimingOptions"],
) -> "ScheduleDecorator":
    """Declare a schedule of a task, or of a function that becomes one; a worker that starts stores it.

    Args:
        cron: an expression of 5 fields, of 6 with seconds first, or ``@daily`` and its like; or give ``every`` or
            ``at``.
        name: what the schedule is called; the task's name by default, or its first alias.
        arguments: those of each job, by parameter.

    Returns:
        A decorator, which returns the task.

    Raises:
        InvalidOption: an option makes no sense, or the name is declared already.
    """
    from pgqueue.app.schedules.declared_schedules import DeclaredSchedule, timing_of  # noqa: PLC0415 - see the module's docstring
    from pgqueue.values.schedules.schedule import check_schedule_name  # noqa: PLC0415

    when = timing_of(cron, timing)

    def declare(decorated: Any) -> Any:  # noqa: ANN401 - as Declares says
        task: Task[..., Any] = decorated if isinstance(decorated, Task) else self.task(decorated)
        chosen = check_schedule_name(task.first_name if name is None else name)
        if chosen in self._declared:
            raise InvalidOption(
                f"schedule {chosen!r} is declared twice, for {self._declared[chosen].task.name} and {task.name}; "
                "give one of the two another name: schedule(..., name=...)"
            )
        self._declared[chosen] = DeclaredSchedule(chosen, task, arguments or {}, when)
        return task

    return declare


def alert(  # noqa: D417 - a method of the queue
    self: Registry,
    name: str,
    rule: "Rule",
    /,
    *,
    after: Duration = 0,
    clear_for: Duration = timedelta(minutes=5),
    repeat_every: Duration | None = None,
    resolved: bool = False,
) -> "Callable[[T], T]":
    """Declare an alert: a job of the task tells that a condition holds. A worker that starts stores it; each looks at it.

    The task is told once, and again only after the alert is over.

    Args:
        name: what the alert is called.
        rule: its condition, such as ``OldestReady(queue="mail", over=timedelta(minutes=5))``.
        after: for how long the condition must hold before; seconds, or a timedelta.
        clear_for: for how long the condition must not hold before the alert is over.
        repeat_every: after which time the task is told again while the alert goes on; None: it is not.
        resolved: whether the task is told when the alert is over.

    Returns:
        A decorator of a task whose one argument is an :class:`pgqueue.Alert`; it returns the task.

    Raises:
        InvalidOption: an option makes no sense, or the name is declared already.
    """
    from pgqueue.app.alerts import DeclaredAlert, checked_name, checked_rule  # noqa: PLC0415 - see the module's docstring
    from pgqueue.values.alerts.state import Terms  # noqa: PLC0415

    chosen, condition = checked_name(name), checked_rule(name, rule)
    terms = Terms.checked(after, clear_for, repeat_every, resolved=resolved)

    def declare(task: T) -> T:
        if not isinstance(task, Task):
            raise InvalidOption(
                f"alert {chosen!r}: {task!r:.80} is no task; put @queue.alert above @queue.task"
            )
        if chosen in self._declared_alerts:
            raise InvalidOption(
                f"alert {chosen!r} is declared twice, for {self._declared_alerts[chosen].task.name} and {task.name}; "
                "give one of the two another name"
            )
        self._declared_alerts[chosen] = DeclaredAlert(chosen, task, condition, terms)
        return task

    return declare
