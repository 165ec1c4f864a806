"""The form in which people add and edit schedules in the admin, with the checks and the errors of ``queue.schedules``.

Which schedules may be edited is decided in ``admin_schedules.py``.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, get_args

from django import forms
from django.conf import settings
from django.contrib.admin.widgets import AdminSplitDateTime
from django.core.exceptions import ValidationError
from django.utils import timezone

from pgqueue.app.schedules.schedule_encoder import require_stored
from pgqueue.app.task import Call
from pgqueue.django.djangoqueue import project_queue
from pgqueue.django.models import Schedule as Row
from pgqueue.errors import InvalidOption, PgQueueError
from pgqueue.values.payloads.readable import UNREADABLE
from pgqueue.values.schedules.record import Schedule, ScheduleChange
from pgqueue.values.schedules.rule import Gap, Repeat
from pgqueue.values.schedules.schedule import Missed, NewSchedule, Overlap, Timing

TIMING = (
    "cron", "every", "at", "timezone", "anchor", "start", "end", "gap", "repeat", "jitter", "missed", "missed_limit", "grace",
    "overlap",
)  # fmt: skip
JOB = ("queue", "priority", "max_attempts")
LENGTH = "Such as 30 (seconds), 00:10:00 or 1 00:00:00 (a day)."
AS_CRON = [("", "as cron does")]


class ArgumentsField(forms.JSONField):
    """A JSON object."""

    def to_python(self, value: Any) -> Any:  # noqa: ANN401 - any text
        """The object."""
        try:
            read = super().to_python(value)
        except (ValueError, RecursionError) as error:  # more digits or levels than Python reads
            raise ValidationError(f"Enter JSON that Python can read: {error}") from error
        if read is not None and not isinstance(read, dict):
            raise ValidationError('Enter a JSON object, such as {"region": "eu"}.')
        return read or {}

    def prepare_value(self, value: Any) -> Any:  # noqa: ANN401 - an object, or what was entered
        """As text; what cannot be read as JSON stays as it was entered."""
        try:
            return super().prepare_value(value)
        except (ValueError, RecursionError):
            return value

    def bound_data(self, data: Any, initial: Any) -> Any:  # noqa: ANN401 - Django's call
        """What is shown again after an error."""
        try:
            return super().bound_data(data, initial)
        except (ValueError, RecursionError):
            return forms.fields.InvalidJSONInput(data)

    def has_changed(self, initial: Any, data: Any) -> bool:  # noqa: ANN401 - Django's call
        """Whether they were edited."""
        try:
            return bool(super().has_changed(initial, data))
        except (ValueError, RecursionError):
            return True


class Instant(forms.SplitDateTimeField):
    """A day and a time, in the time zone of the page; empty: none."""

    widget = AdminSplitDateTime

    def compress(self, data_list: Any) -> Any:  # noqa: ANN401 - Django's call
        """The instant; a project without time zones means those of its settings."""
        found = super().compress(data_list)
        return timezone.make_aware(found) if found is not None and timezone.is_naive(found) else found


class ScheduleForm(forms.ModelForm):  # type: ignore[type-arg]  # Django's classes take no parameter at run time
    """A schedule: when it ticks, and the job of each tick. What is left as it is keeps its stored value to the microsecond."""

    task = forms.ChoiceField(help_text="A task of this project.")
    arguments = ArgumentsField(
        required=False, initial=dict, help_text='A JSON object, such as {"region": "eu"}.'
    )
    queue = forms.CharField(required=False, help_text="Empty: the task's own.")
    priority = forms.IntegerField(
        required=False, help_text="From -100 to 100; a job with a higher one runs sooner."
    )
    max_attempts = forms.IntegerField(
        required=False, help_text="A job is dead after this many failed attempts."
    )
    cron = forms.CharField(
        required=False, help_text="5 fields, 6 with seconds first, or @daily. Or fill in one of the next two."
    )
    every = forms.DurationField(required=False, help_text=f"The time between two ticks. {LENGTH}")
    at = Instant(required=False, help_text="The instant of the only tick.")
    timezone = forms.CharField(initial="UTC", help_text="Of the cron expression, such as Europe/London.")
    anchor = Instant(required=False, help_text="An instant at which “every” has a tick.")
    start = Instant(required=False, help_text="No tick is earlier.")
    end = Instant(required=False, help_text="No tick is later.")
    gap = forms.ChoiceField(
        required=False,
        choices=[*AS_CRON, *((one, one) for one in get_args(Gap))],
        help_text="A time that does not exist, since clocks go forward.",
    )
    repeat = forms.ChoiceField(
        required=False,
        choices=[*AS_CRON, *((one, one) for one in get_args(Repeat))],
        help_text="A time that exists twice, since clocks go back.",
    )
    jitter = forms.DurationField(initial="0", help_text="Each job waits for up to this long after its tick.")
    missed = forms.ChoiceField(
        initial="latest",
        choices=[(one, one) for one in get_args(Missed)],
        help_text="Which missed ticks fire.",
    )
    missed_limit = forms.IntegerField(initial=100, help_text="The most missed ticks that “all” fires.")
    grace = forms.DurationField(initial="60", help_text="A tick that is later than this is missed.")
    overlap = forms.ChoiceField(
        initial="allow",
        choices=[(one, one) for one in get_args(Overlap)],
        help_text="While an earlier job has not ended.",
    )

    class Meta:
        """The only field of the model."""

        model = Row
        fields = ("name",)
        widgets = {"name": forms.TextInput(attrs={"class": "vTextField"})}  # noqa: RUF012 - Django's way

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - Django's own
        row = kwargs.get("instance")
        self._stored: Schedule | None = None if row is None else project_queue().schedules.get(row.name)
        if self._stored is not None:
            kwargs["initial"] = {name: _initial_value(value) for name, value in _values(self._stored).items()}
        super().__init__(*args, **kwargs)
        if "task" in self.fields:  # not on a page that only shows the schedule
            tasks = sorted(project_queue().tasks)
            self.fields["task"].choices = [(name, name) for name in tasks]  # type: ignore[attr-defined]  # a choice field
            self.fields["name"].disabled = self._stored is not None

    def clean(self) -> dict[str, Any]:
        """Check all that ``queue.schedules`` checks; each error is shown at the field that it names."""
        given: dict[str, Any] = super().clean() or {}
        if self.errors:
            return given
        try:
            self._timing = Timing(**self._options(TIMING))
            self._call = self._called(given)
            new = NewSchedule(name=given["name"], job=self._call.job, timing=self._timing)
            new.require_tick(timezone.now())
        except (PgQueueError, TypeError) as error:
            self._show(str(error))
        return given

    def store(self, by: str) -> ScheduleChange | None:
        """Store what was entered. None: it was added.

        Args:
            by: who entered it, for the audit.

        Raises:
            InvalidOption: the name was taken meanwhile, or no tick is left.
        """
        name = self.cleaned_data["name"]
        if self._stored is not None:
            plan = project_queue().schedules.edition(name, self._call, self._timing, by=by)
            return require_stored(name, project_queue().database.run(plan))
        options = {one: getattr(self._timing, one) for one in TIMING}
        project_queue().schedules.add(name, self._call, options.pop("cron"), by=by, **options)
        return None

    def _called(self, given: Mapping[str, Any]) -> Call[Any]:
        arguments = given["arguments"]
        if arguments.keys() == {UNREADABLE}:
            raise InvalidOption("arguments= that are stored cannot be read here: enter them again")
        meta = None if self._stored is None else self._stored.meta
        task = project_queue().tasks[given["task"]].using(**self._options(JOB), meta=meta)
        return task.call(**arguments)

    def _options(self, names: tuple[str, ...]) -> dict[str, Any]:
        stored = {} if self._stored is None else _values(self._stored)
        # What was left as it is stays as it is stored: pages show no microseconds.
        kept = {name: stored[name] for name in names if name in stored and name not in self.changed_data}
        entered = {name: self.cleaned_data[name] for name in names} | kept
        return {name: None if value == "" else value for name, value in entered.items()}

    def _show(self, said: str) -> None:
        named = re.match(r"(\w+)=", said)
        field = named[1] if named and named[1] in self.fields else None
        self.add_error(field, ValidationError(said))


def _initial_value(value: object) -> object:
    if isinstance(value, datetime) and not settings.USE_TZ:
        # A project without time zones shows the times of its own.
        return timezone.make_naive(value)
    return value


def _values(stored: Schedule) -> dict[str, Any]:
    timing = {} if stored.timing is None else {name: getattr(stored.timing, name) for name in TIMING}
    return {
        "task": stored.task,
        "arguments": stored.args,
        **{name: getattr(stored, name) for name in JOB},
        **timing,
    }
