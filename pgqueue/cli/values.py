"""Values on the command line: lengths of time, instants, JSON, names, job ids; and whether a queue's name is known.

Values out of range raise an error here, in terms of the command line; the core checks them again, in terms of Python. A
mistyped name makes a queue that no worker serves, and raises no error: a note says so.
"""

from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.errors import InvalidOption
from pgqueue.store.jobs import control
from pgqueue.values.hints import did_you_mean
from pgqueue.values.length import read_length
from pgqueue.values.workers.load import read_bounds

if TYPE_CHECKING:
    LengthType = click.ParamType[timedelta]
else:  # older releases of click know no parameter
    LengthType = click.ParamType


class Id(click.IntRange):
    """The id of a job, or of another row: a whole number from 1 on."""

    def __init__(self) -> None:
        super().__init__(min=1, max=(1 << 63) - 1)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it."""
        try:
            return int(super().convert(value, param, ctx))  # type: ignore[arg-type]  # a text
        except click.BadParameter:
            self.fail(f"{value!r} is not an id: give the number that a list shows, from 1 on.", param, ctx)


JOB_ID = Id()


class Length(LengthType):
    """A length of time: seconds, or a number with s, m, h, d or w behind it."""

    name = "length"

    def __init__(self, *, above_zero: bool = False) -> None:
        """The longest length is ten years, as in all of pgqueue."""
        self._above_zero = above_zero

    def get_metavar(self, *_: object, **__: object) -> str:
        """What the help shows."""
        return "SECONDS|5m|2h"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Read it."""
        if isinstance(value, timedelta):
            return value
        try:
            return read_length(str(value), above_zero=self._above_zero)
        except InvalidOption as error:
            self.fail(f"{error}.", param, ctx)


LENGTH, ABOVE_ZERO = Length(), Length(above_zero=True)


def concurrency(value: str) -> int | tuple[int, int]:
    """A number of slots, or a minimum and a maximum."""
    try:
        found = read_bounds(value)
    except InvalidOption as error:
        raise click.BadParameter(str(error)) from None
    return found.minimum if found.fixed else (found.minimum, found.maximum)


def day(value: str) -> date:
    """A day."""
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is no day; use one like 2030-01-31.") from None


def instant(value: str) -> datetime:
    """A time in ISO 8601, with its time zone."""
    example = "use one like 2030-01-31T08:00:00+01:00, or Z for UTC"
    try:
        read = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is no ISO 8601 time; {example}.") from None
    if read.utcoffset() is None:
        raise click.BadParameter(f"{value!r} has no time zone, so it names no instant; {example}.")
    return read


def json_object(value: str) -> dict[str, Any]:
    """A JSON object."""
    try:
        return msgspec.json.decode(value.encode(), type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(
            f"{value!r} is no JSON object ({error}); use one like '{{\"id\": 42}}'."
        ) from None


def names(value: str) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in value.split(",")]


def any_json(value: str) -> msgspec.Raw:
    """Any JSON, as it was written."""
    try:
        msgspec.json.decode(value.encode())
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(
            f"{value!r:.80} is no JSON ({error}); write a string with quotes in it, '\"yes\"'."
        ) from None
    return msgspec.Raw(value.encode())


def look_up(queue: PgQueue, *names: str) -> Callable[[], None]:
    """Find out which of these queues no declaration, task, worker or job names; the returned function prints it on stderr."""
    declared = queue.queues is not None  # then a name that is not declared has raised an error already
    known = set(names) if declared or not names else _known_queues(queue)
    notes = [
        f"note: no job, no worker's --queues and no task of the app names the queue {name!r}{did_you_mean(name, known)}"
        for name in names
        if name not in known
    ]

    def tell() -> None:
        for note in notes:
            click.echo(note, err=True)

    return tell


def _known_queues(queue: PgQueue) -> set[str]:
    counts, paused = queue.insight.counts()
    served = queue.database.run(control.worker_queues())
    of_tasks = [task.options.queue for task in queue.tasks.values()]
    return {*served, *paused, *of_tasks, *(one.queue for one in counts)}
