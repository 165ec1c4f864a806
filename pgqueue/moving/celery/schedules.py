"""``beat_schedule`` and its schedules: ``crontab``, ``schedule``, seconds and timedeltas, declared as schedules of pgqueue."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta, tzinfo
from typing import Any, NoReturn

from pgqueue.app.pgqueue import PgQueue
from pgqueue.errors import ConfigurationError, InvalidOption
from pgqueue.moving.celery.canvas import Signature
from pgqueue.moving.celery.task import CeleryTask
from pgqueue.moving.strict import missing_name

Field = str | int | Iterable[int]
ENTRY = ("args", "kwargs", "options", "relative", "schedule", "task")


@dataclass(frozen=True)
class crontab:  # noqa: N801 - Celery's own name
    """A schedule like cron's. Both ``day_of_month`` and ``day_of_week`` cannot be restricted: cron would take either day."""

    minute: Field = "*"
    hour: Field = "*"
    day_of_week: Field = "*"
    day_of_month: Field = "*"
    month_of_year: Field = "*"

    @property
    def expression(self) -> str:
        """The five fields of cron.

        Raises:
            InvalidOption: the days of the month and those of the week are both restricted.
        """
        days, weekdays = _field(self.day_of_month), _field(self.day_of_week)
        if "*" not in (days, weekdays):
            raise InvalidOption(
                f"crontab(day_of_month={days!r}, day_of_week={weekdays!r}): Celery runs on days that are both, cron on days "
                "that are either; restrict one, and return early in the task on the other days"
            )
        return f"{_field(self.minute)} {_field(self.hour)} {days} {_field(self.month_of_year)} {weekdays}"


@dataclass(frozen=True)
class schedule:  # noqa: N801 - Celery's own name
    """An interval: seconds, or a timedelta."""

    run_every: timedelta | float
    relative: bool = False


def solar(*place: object) -> NoReturn:
    """Refused.

    Raises:
        ConfigurationError: always.
    """
    raise ConfigurationError(
        f"solar{place!r}: pgqueue knows no sunrise; let a daily task compute the instant, and call "
        "task.apply_async(eta=...)"
    )


def declare(
    queue: PgQueue,
    entries: Mapping[str, Mapping[str, Any]],
    find: Callable[[str], CeleryTask[..., Any]],
    timezone: tzinfo,
) -> None:
    """Declare the entries of ``beat_schedule``; a worker that starts stores them.

    Args:
        queue: where.
        entries: by their names.
        find: returns a task by its name.
        timezone: of ``crontab(...)``.

    Raises:
        InvalidOption: an entry makes no sense, or its arguments do not fit the task.
        UnknownTask: its task is not registered.
    """
    for name, entry in entries.items():
        unknown = [one for one in entry if one not in ENTRY]
        if unknown or not {"task", "schedule"} <= {*entry}:
            raise InvalidOption(f"beat_schedule[{name!r}]: an entry has 'task' and 'schedule', and may have {', '.join(ENTRY[:3])}")  # fmt: skip
        called: Signature[Any] = Signature(find(entry["task"]), entry.get("args") or (), entry.get("kwargs"))
        task, given, named = called.task.call(called.args, called.kwargs, entry.get("options") or {}, None)
        cron, timing = _timing(entry["schedule"], timezone)
        queue.schedule(cron, name=name, arguments=_by_name(called, given, named), **timing)(task)


def _timing(when: Any, timezone: tzinfo) -> tuple[str | None, Any]:
    if isinstance(when, crontab):
        return when.expression, {"timezone": str(timezone)}
    every = when.run_every if isinstance(when, schedule) else when
    if isinstance(every, bool) or not isinstance(every, int | float | timedelta):
        raise InvalidOption(f"schedule {when!r:.80}: use crontab(...), a timedelta, or a number of seconds")
    return None, {"every": every}


def _by_name(called: Signature[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    bound = inspect.signature(called.task.run).bind(*args, **kwargs)
    for one in bound.signature.parameters.values():
        if one.kind in (one.VAR_POSITIONAL, one.POSITIONAL_ONLY) and one.name in bound.arguments:
            raise InvalidOption(
                f"{called}: the arguments of a schedule are stored by name; give {one.name} a name that can be used"
            )
        if one.kind is one.VAR_KEYWORD:
            bound.arguments |= bound.arguments.pop(one.name, {})
    return dict(bound.arguments)


def _field(given: Field) -> str:
    return str(given) if isinstance(given, str | int) else ",".join(str(one) for one in sorted(given))


def __getattr__(name: str) -> NoReturn:
    raise missing_name(
        "celery.schedules", name, {"crontab_parser": "write the expression to @queue.schedule(...)"}
    )
