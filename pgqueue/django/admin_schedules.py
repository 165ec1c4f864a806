"""The admin's page of schedules: when each ticks next, and the actions pause, resume and fire.

Schedules that were made at run time can be added, edited and deleted; the form is in ``admin_schedule_form.py``. Those that code
declares are shown with the reason why they cannot be edited.
"""

from collections.abc import Mapping
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseRedirect
from django.utils.safestring import SafeString

from pgqueue.django.admin_pages import ReadOnlyAdmin, UncountedPaginator, allows, list_address, moment
from pgqueue.django.admin_schedule_form import ScheduleForm
from pgqueue.django.admin_show import as_ago, as_json, as_state
from pgqueue.django.djangoqueue import project_queue
from pgqueue.django.models import Schedule
from pgqueue.errors import PgQueueError

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
        by = str(request.user)
        self.act(
            request,
            queryset,
            lambda one: "paused" if project_queue().schedules.pause(one.name, by=by) else None,
            "paused already",
        )

    @admin.action(description="Resume selected %(verbose_name_plural)s", permissions=["pause"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Fire their ticks again."""
        by = str(request.user)
        self.act(
            request,
            queryset,
            lambda one: "resumed" if project_queue().schedules.resume(one.name, by=by) else None,
            "not paused",
        )

    @admin.action(description="Fire selected %(verbose_name_plural)s now", permissions=["fire"])
    def fire(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Enqueue a job of each now."""
        by = str(request.user)
        self.act(
            request,
            queryset,
            lambda one: "fired" if project_queue().schedules.fire(one.name, by=by) else None,
            "a live job has its unique key",
        )


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
