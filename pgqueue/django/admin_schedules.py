"""The admin's page of schedules: when each ticks next, and the actions pause, resume and fire.

Schedules that were made at run time can be added, edited and deleted. Those that code declares are shown with the reason why
they cannot be edited.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, get_args

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.widgets import AdminSplitDateTime
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseRedirect
from django.utils import timezone
from django.utils.safestring import SafeString

from pgqueue.app.schedules.declared_schedules import require_stored
from pgqueue.app.task import Call
from pgqueue.django.admin_pages import ReadOnlyAdmin, UncountedPaginator, allows, list_address, moment
from pgqueue.django.admin_show import as_ago, as_json, as_state
from pgqueue.django.djangoqueue import project_queue
from pgqueue.django.models import Schedule
from pgqueue.errors import InvalidOption, PgQueueError
from pgqueue.values.payloads.storable import UNREADABLE
from pgqueue.values.schedules.rule import Gap, Repeat
from pgqueue.values.schedules.schedule import Missed, NewSchedule, Overlap, ScheduleChange, Timing
from pgqueue.values.schedules.schedule import Schedule as StoredSchedule

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

        model = Schedule
        fields = ("name",)
        widgets = {"name": forms.TextInput(attrs={"class": "vTextField"})}  # noqa: RUF012 - Django's way

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - Django's own
        row = kwargs.get("instance")
        self._stored: StoredSchedule | None = None if row is None else project_queue().schedules.get(row.name)
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


MANY = 1000
EDITED = (
    (None, {"fields": ("name",)}),
    ("Job", {"fields": ("task", "arguments", "queue", "priority", "max_attempts")}),
    ("When", {"fields": ("cron", "every", "at", "timezone")}),
    ("Bounds", {"fields": ("start", "end", "anchor")}),
    ("When clocks change", {"fields": ("gap", "repeat")}),
    (
        "Late ticks, and while a job runs",
        {"fields": ("grace", "missed", "missed_limit", "overlap", "jitter")},
    ),
)


@admin.register(Schedule)
class ScheduleAdmin(ReadOnlyAdmin):
    """The schedules, the first thousand by name."""

    list_display = ("name", "task", "rule", "state_shown", "next_tick")
    search_fields = ("name", "task")
    actions = ("pause", "resume", "fire")
    page = UncountedPaginator
    form = ScheduleForm
    ordering = ("name",)
    created = moment("created_at", "added at")
    paused = moment("paused_at", "paused at")
    failed = moment("failed_at", "set aside at")
    following = moment("next_at", "next look")
    sections = (
        (None, ("name", "state_shown", "rule", "following", "missed", "overlap")),
        ("Job", ("task", "queue", "args_shown", "priority")),
        ("Paused", ("paused", "paused_by")),
        ("Set aside", ("failed", "error")),
        ("Origin", ("origin", "created")),
    )

    def has_pause_permission(self, request: HttpRequest) -> bool:
        """Who may pause and resume."""
        return allows(request, "pause_schedule")

    def has_fire_permission(self, request: HttpRequest) -> bool:
        """Who may fire."""
        return allows(request, "fire_schedule")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Who may add schedules."""
        return allows(request, "add_schedule")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ANN401 - Django's call
        """Who may edit schedules; those that cannot be edited are shown."""
        return allows(request, "change_schedule") and (obj is None or _why_not_editable(obj) is None)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ANN401 - Django's call
        """Who may delete schedules; code removes those that it declares."""
        return allows(request, "delete_schedule") and (obj is None or obj.module is None)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:  # noqa: ANN401 - Django's call
        """The form; or what there is to see, where it cannot be edited."""
        if self._edits(request, obj):
            shown = (
                ()
                if obj is None
                else (("Now", {"fields": ("state_shown", "following", "paused_by", "error")}),)
            )
            return [*EDITED, *shown]
        return super().get_fieldsets(request, obj)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:  # noqa: ANN401 - Django's call
        """What is shown beside the form; or all."""
        if self._edits(request, obj):
            return ["state_shown", "following", "paused_by", "error"]
        return super().get_readonly_fields(request, obj)

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Django's call
        """The page; what another user did meanwhile is told on the list."""
        try:
            return super().changeform_view(request, *args, **kwargs)
        except PgQueueError as error:
            self.message_user(request, str(error), messages.ERROR)
            return HttpResponseRedirect(list_address(self.model))

    def save_model(self, request: HttpRequest, obj: Schedule, form: Any, change: Any) -> None:  # noqa: ANN401, ARG002 - Django's call
        """Store what was entered."""
        form.store(str(request.user))

    def delete_model(self, request: HttpRequest, obj: Schedule) -> None:
        """Remove one."""
        project_queue().schedules.remove(obj.name, by=str(request.user))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Remove several; Django has asked for each whether it may be deleted."""
        for row in queryset:
            project_queue().schedules.remove(row.name, by=str(request.user))

    def _edits(self, request: HttpRequest, obj: Any) -> bool:  # noqa: ANN401 - a schedule or None
        return self.has_add_permission(request) if obj is None else self.has_change_permission(request, obj)

    def listed(self, rows: QuerySet[Any]) -> list[Schedule]:
        """The first rows."""
        return list(rows[:MANY])

    def buttons(self, obj: Schedule) -> Mapping[str, str]:
        """The actions that change the schedule's state, and fire it."""
        paused = obj.paused_at is not None or obj.error is not None
        return ({"resume": "Resume"} if paused else {"pause": "Pause"}) | {"fire": "Fire now"}

    @admin.display(description="rule")
    def rule(self, schedule: Schedule) -> str:
        """When its ticks are."""
        if schedule.cron is not None:
            return f"{schedule.cron} {schedule.timezone}"
        return f"every {schedule.every}" if schedule.every is not None else f"once at {schedule.at}"

    @admin.display(description="state")
    def state_shown(self, schedule: Schedule) -> SafeString:
        """Active, paused, set aside or ended."""
        if schedule.error is not None:
            return as_state("set aside")
        if schedule.paused_at is not None:
            return as_state("paused")
        return as_state("active" if schedule.next_at is not None else "ended")

    @admin.display(description="next tick")
    def next_tick(self, schedule: Schedule) -> SafeString | str:
        """When a worker looks at it next."""
        active = schedule.paused_at is None and schedule.error is None
        return as_ago(schedule.next_at) if active else ""

    @admin.display(description="made")
    def origin(self, schedule: Schedule) -> str:
        """Who made it, and why it cannot be edited here."""
        return _why_not_editable(schedule) or "at run time"

    @admin.display(description="arguments")
    def args_shown(self, schedule: Schedule) -> SafeString | str:
        """The arguments of each job."""
        return as_json(project_queue().schedules.get(schedule.name).args)

    @admin.action(description="Pause selected %(verbose_name_plural)s", permissions=["pause"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Fire none of their ticks."""
        self._ask(request, queryset, "pause", said="paused", refused="paused already")

    @admin.action(description="Resume selected %(verbose_name_plural)s", permissions=["pause"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Fire their ticks again."""
        self._ask(request, queryset, "resume", said="resumed", refused="not paused")

    @admin.action(description="Fire selected %(verbose_name_plural)s now", permissions=["fire"])
    def fire(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Enqueue a job of each now."""
        self._ask(request, queryset, "fire", said="fired", refused="a live job has its unique key")

    def _ask(
        self, request: HttpRequest, queryset: QuerySet[Any], method: str, *, said: str, refused: str
    ) -> None:
        ask, by = getattr(project_queue().schedules, method), str(request.user)
        self.act(request, queryset, lambda one: said if ask(one.name, by=by) else None, refused)


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
