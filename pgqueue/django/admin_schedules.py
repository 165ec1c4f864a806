"""The admin's page of schedules: when each ticks next, and the actions pause, resume and fire.

Schedules that were made at run time can be added, edited and deleted. Those that code declares are shown with the reason why
they cannot be edited.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, get_args

from django import forms
from django.conf import settings
from django.contrib import admin
from django.contrib.admin.widgets import AdminSplitDateTime
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from pgqueue.app.schedules.declared_schedules import require_stored
from pgqueue.app.task import Call
from pgqueue.django.admin_pages import (
    LENGTH,
    ReadOnlyAdmin,
    action,
    allows,
    column,
    may,
    moment,
    show_refusal,
    with_facts,
)
from pgqueue.django.admin_show import as_ago, as_json, as_state
from pgqueue.django.djangoqueue import project_queue
from pgqueue.django.models import Schedule
from pgqueue.errors import InvalidOption, PgQueueError
from pgqueue.values.payloads.storable import UNREADABLE
from pgqueue.values.schedules.rule import Gap, Repeat
from pgqueue.values.schedules.schedule import Missed, NewSchedule, Overlap, ScheduleChange, Timing
from pgqueue.values.schedules.schedule import Schedule as StoredSchedule
from pgqueue.values.secret_forms import HIDDEN

TIMING = (
    "cron", "every", "at", "timezone", "anchor", "start", "end", "gap", "repeat", "jitter", "missed", "missed_limit", "tolerance",
    "overlap",
)  # fmt: skip
JOB = ("queue", "priority", "max_attempts")
AS_CRON = [("", "as cron does")]


class Decoder(json.JSONDecoder):
    """Reads JSON; what Python cannot read, because of its levels or its digits, is no JSON."""

    def decode(self, s: str, *given: Any) -> Any:  # noqa: ANN401 - any JSON
        """Read it."""
        try:
            return super().decode(s, *given)
        except (ValueError, RecursionError) as error:
            raise json.JSONDecodeError(str(error), "", 0) from error


class ArgumentsField(forms.JSONField):
    """A JSON object."""

    def to_python(self, value: Any) -> Any:  # noqa: ANN401 - any text
        """The object."""
        read = super().to_python(value)
        if read is not None and not isinstance(read, dict):
            raise ValidationError('Enter a JSON object, such as {"region": "eu"}.')
        return read or {}


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
        required=False,
        initial=dict,
        decoder=Decoder,
        help_text='A JSON object, such as {"region": "eu"}.',
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
    tolerance = forms.DurationField(initial="60", help_text="A tick that is later than this is missed.")
    overlap = forms.ChoiceField(
        initial="allow",
        choices=[(one, one) for one in get_args(Overlap)],
        help_text="While an earlier job has not ended.",
    )

    class Meta:
        """The only field of the model."""

        model = Schedule
        fields = ("name",)
        widgets = {"name": forms.TextInput(attrs={"class": "vTextField"})}  # noqa: RUF012 - Django's way

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - Django's own
        row = kwargs.get("instance")
        self._stored: StoredSchedule | None = None if row is None else project_queue().schedules.get(row.name)
        if self._stored is not None:
            kwargs["initial"] = {name: _initial_value(value) for name, value in _values(self._stored).items()}
            kwargs["initial"]["arguments"] = project_queue().redaction.value(self._stored.args)
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
            show_refusal(self, str(error))
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
            plan = project_queue().schedules.edition(name, self._call.job, self._timing, by=by)
            return require_stored(name, project_queue().database.run(plan))
        options = {one: getattr(self._timing, one) for one in TIMING}
        project_queue().schedules.add(name, self._call, options.pop("cron"), by=by, **options)
        return None

    def _called(self, given: Mapping[str, Any]) -> Call[Any]:
        arguments, stored = given["arguments"], self._stored
        if stored is not None and given["task"] == stored.task:  # another task may show what this one hides
            arguments = project_queue().redaction.restored(arguments, stored.args)
        elif HIDDEN in as_json(arguments):
            raise InvalidOption(f"arguments= has {HIDDEN} in place of a hidden value: write the value itself")
        if arguments.keys() == {UNREADABLE}:
            raise InvalidOption("arguments= that are stored cannot be read here: enter them again")
        meta = None if stored is None else stored.meta
        task = project_queue().tasks[given["task"]].using(**self._options(JOB), meta=meta)
        return task.call(**arguments)

    def _options(self, names: tuple[str, ...]) -> dict[str, Any]:
        stored = {} if self._stored is None else _values(self._stored)
        # What was left as it is stays as it is stored: pages show no microseconds.
        kept = {name: stored[name] for name in names if name in stored and name not in self.changed_data}
        entered = {name: self.cleaned_data[name] for name in names} | kept
        return {name: None if value == "" else value for name, value in entered.items()}


MANY = 1000
NOW = ("state_shown", "following", "paused_by", "error_shown")
EDITED = (
    (None, {"fields": ("name",)}),
    ("Job", {"fields": ("task", "arguments", "queue", "priority", "max_attempts")}),
    ("When", {"fields": ("cron", "every", "at", "timezone")}),
    ("Bounds", {"fields": ("start", "end", "anchor")}),
    ("When clocks change", {"fields": ("gap", "repeat")}),
    (
        "Late ticks, and while a job runs",
        {"fields": ("tolerance", "missed", "missed_limit", "overlap", "jitter")},
    ),
)


def _as_action(label: str, permission: str, method: str, said: str, refused: str) -> Any:  # noqa: ANN401 - a method of an admin
    def do(schedule: Schedule, by: str) -> str | None:
        return said if getattr(project_queue().schedules, method)(schedule.name, by=by) else None

    return action(label, permission, do, refused)


@admin.register(Schedule)
class ScheduleAdmin(ReadOnlyAdmin):
    """The schedules, the first thousand by name."""

    list_display = ("name", "task", "rule", "state_shown", "next_tick")
    search_fields = ("name", "task")
    actions = ("pause", "resume", "fire")
    form = ScheduleForm
    ordering = ("name",)
    sections = (
        (None, ("name", "state_shown", "rule", "following", "missed", "overlap")),
        ("Job", ("task", "queue", "args_shown", "priority")),
        ("Paused", ("paused", "paused_by")),
        ("Set aside", ("failed", "error_shown")),
        ("Origin", ("origin", "created")),
    )
    created = moment("created_at", "added at")
    paused = moment("paused_at", "paused at")
    failed = moment("failed_at", "set aside at")
    following = moment("next_at", "next look")
    rule = column("rule", lambda schedule: schedule.stored.rule)
    state_shown = column("state", lambda schedule: as_state(schedule.stored.state))
    next_tick = column("next tick", lambda schedule: as_ago(schedule.stored.next))
    origin = column("made", lambda schedule: _why_not_editable(schedule) or "at run time")
    args_shown = column(
        "arguments", lambda schedule: as_json(project_queue().redaction.value(schedule.stored.args))
    )
    error_shown = column("error", lambda schedule: project_queue().redaction.text(schedule.error) or "-")
    has_pause_permission = may("pause_schedule")
    has_fire_permission = may("fire_schedule")
    has_add_permission = may("add_schedule")
    pause = _as_action("Pause selected {}", "pause", "pause", "paused", "paused already")
    resume = _as_action("Resume selected {}", "pause", "resume", "resumed", "not paused")
    fire = _as_action("Fire selected {} now", "fire", "fire", "fired", "a live job has its unique key")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ANN401 - Django's call
        """Who may edit schedules; those that cannot be edited are shown."""
        return allows(request, "change_schedule") and (obj is None or _why_not_editable(obj) is None)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ANN401 - Django's call
        """Who may delete schedules; code removes those that it declares."""
        return allows(request, "delete_schedule") and (obj is None or obj.module is None)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:  # noqa: ANN401 - Django's call
        """The form; or what there is to see, where it cannot be edited."""
        if not self._edits(request, obj):
            return super().get_fieldsets(request, obj)
        return EDITED if obj is None else [*EDITED, ("Now", {"fields": NOW})]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:  # noqa: ANN401 - Django's call
        """What is shown beside the form; or all."""
        return list(NOW) if self._edits(request, obj) else super().get_readonly_fields(request, obj)

    def save_model(self, request: HttpRequest, obj: Schedule, form: Any, change: Any) -> None:  # noqa: ANN401, ARG002 - Django's call
        """Store what was entered."""
        form.store(request.user.get_username())

    def delete_model(self, request: HttpRequest, obj: Schedule) -> None:
        """Remove one."""
        project_queue().schedules.remove(obj.name, by=request.user.get_username())

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Remove several; Django has asked for each whether it may be deleted."""
        for row in queryset:
            self.delete_model(request, row)

    def _edits(self, request: HttpRequest, obj: Any) -> bool:  # noqa: ANN401 - a schedule or None
        return self.has_add_permission(request) if obj is None else self.has_change_permission(request, obj)

    def listed(self, rows: QuerySet[Any]) -> list[Schedule]:
        """The first rows, each with what the queue says of it."""
        stored = {one.name: one for one in project_queue().schedules.find(limit=MANY)}
        return with_facts(rows[:MANY], "stored", stored)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:  # noqa: ANN401 - an instance of the model
        """A schedule by its name."""
        row = super().get_object(request, object_id, from_field)
        if row is not None:
            row.stored = project_queue().schedules.get(row.name)
        return row

    def buttons(self, obj: Schedule) -> Mapping[str, str]:
        """The actions that change the schedule's state, and fire it."""
        paused = obj.paused_at is not None or obj.error is not None
        return ({"resume": "Resume"} if paused else {"pause": "Pause"}) | {"fire": "Fire now"}


def _why_not_editable(schedule: Schedule) -> str | None:
    """Return why a schedule cannot be edited; None: it can."""
    if schedule.module is not None:
        return (
            f"The code of {schedule.module} declares it, and a worker that starts stores what the code says. "
            "Change it there and deploy. You can pause and fire it here."
        )
    if schedule.task not in project_queue().tasks:
        return f"At run time. This project has no task {schedule.task}, so its arguments cannot be checked here. Edit it in the app that has."
    return None


def _initial_value(value: object) -> object:
    if isinstance(value, datetime) and not settings.USE_TZ:
        # A project without time zones shows the times of its own.
        return timezone.make_naive(value)
    return value


def _values(stored: StoredSchedule) -> dict[str, Any]:
    timing = {} if stored.timing is None else {name: getattr(stored.timing, name) for name in TIMING}
    return {
        "task": stored.task,
        "arguments": stored.args,
        **{name: getattr(stored, name) for name in JOB},
        **timing,
    }
