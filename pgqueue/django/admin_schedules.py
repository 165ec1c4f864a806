"""The admin's page of schedules: when each ticks next, and the actions pause, resume and fire."""

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from pgqueue.django.admin_pages import ReadOnlyAdmin, Uncounted, allows, moment
from pgqueue.django.admin_show import as_ago, as_json, as_state
from pgqueue.django.djangoqueue import project_queue
from pgqueue.django.models import Schedule

MANY = 1000


@admin.register(Schedule)
class ScheduleAdmin(ReadOnlyAdmin):
    """The schedules, the first thousand by name."""

    list_display = ("name", "task", "rule", "state_shown", "next_tick")
    search_fields = ("name", "task")
    actions = ("pause", "resume", "fire")
    page = Uncounted
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
        ("Origin", ("module", "created")),
    )

    def has_pause_permission(self, request: HttpRequest) -> bool:
        """Who may pause and resume."""
        return allows(request, "pause_schedule")

    def has_fire_permission(self, request: HttpRequest) -> bool:
        """Who may fire."""
        return allows(request, "fire_schedule")

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
        self.act(
            request,
            queryset,
            lambda one: "resumed" if project_queue().schedules.resume(one.name) else None,
            "not paused",
        )

    @admin.action(description="Fire selected %(verbose_name_plural)s now", permissions=["fire"])
    def fire(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Enqueue a job of each now."""
        self.act(
            request,
            queryset,
            lambda one: "fired" if project_queue().schedules.fire(one.name) else None,
            "a live job has its unique key",
        )
