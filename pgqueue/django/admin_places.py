"""The admin's pages of queues, with a form for their settings, and of workers."""

import re
from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME, ActionForm
from django.core.exceptions import ValidationError
from django.db.models import BooleanField, ExpressionWrapper, Q, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils.safestring import SafeString

from pgqueue.django.admin_filters import queue_names
from pgqueue.django.admin_pages import (
    ReadOnlyAdmin,
    UncountedPaginator,
    allows,
    filter_link,
    list_address,
    moment,
)
from pgqueue.django.admin_show import as_ago, as_state
from pgqueue.django.djangoqueue import project_queue
from pgqueue.django.models import Job, Queue, Worker
from pgqueue.errors import PgQueueError
from pgqueue.values.jobs.job import JobState
from pgqueue.values.queues.settings import WHEN_FULL, QueueSettings
from pgqueue.values.workers.load import Bounds

SETTINGS = QueueSettings.__struct_fields__
COMPARED: dict[str, Any] = {"required": False, "show_hidden_initial": True}
"""What was shown comes back with the form: what another operator stores meanwhile is not taken for a change."""
LENGTH = "Such as 30 (seconds), 00:10:00 or 1 00:00:00 (a day)."


class Reason(ActionForm):
    """Beside the list of actions: why a queue is paused or drained."""

    why = forms.CharField(required=False, label="Why", max_length=1000)


class SettingsForm(forms.ModelForm):  # type: ignore[type-arg]  # Django's classes take no parameter at run time
    """What holds for the jobs of a queue where neither their enqueue nor their task says it. Empty: the queue does not say it."""

    priority = forms.IntegerField(
        **COMPARED, help_text="From -100 to 100; a job with a higher one runs sooner."
    )
    max_attempts = forms.IntegerField(**COMPARED, help_text="A job is dead after this many failed attempts.")
    timeout = forms.DurationField(**COMPARED, help_text=f"How long an attempt may take. {LENGTH}")
    keep_history = forms.NullBooleanField(**COMPARED, help_text="No: jobs that succeed leave no record.")
    keep_dead = forms.DurationField(**COMPARED, help_text=f"How long dead jobs are kept. {LENGTH}")
    backlog = forms.IntegerField(**COMPARED, help_text="From how many ready jobs on the queue is full.")
    when_full = forms.TypedChoiceField(
        **COMPARED,
        choices=[("", "not set"), *((one, one) for one in WHEN_FULL)],
        empty_value=None,
        help_text="Refuse: an enqueue to a full queue fails. Warn, and not set: it logs a warning.",
    )
    ageing = forms.DurationField(**COMPARED, help_text=f"The wait that is worth one priority. {LENGTH}")
    ageing_to = forms.IntegerField(
        **COMPARED, help_text="The highest priority that waiting jobs get so, 1 to 100; not set: 100."
    )

    class Meta:
        """The settings."""

        model = Queue
        fields = SETTINGS

    def clean(self) -> dict[str, Any]:
        """Check what ``queue.control.set`` checks; an error is shown at the field that it names."""
        given: dict[str, Any] = super().clean() or {}
        if not self.errors:
            try:
                QueueSettings.checked(self._changed(given))
                pairs = ("backlog", "when_full", "ageing", "ageing_to")
                QueueSettings(**{name: given[name] for name in pairs}).require_pairs()
            except PgQueueError as error:
                named = re.match(r"(\w+)=", str(error))
                field = named[1] if named and named[1] in self.fields else None
                self.add_error(field, ValidationError(str(error)))
        return given

    def store(self, by: str) -> None:
        """Store the settings that were changed; the others stay as they are now."""
        changed = self._changed(self.cleaned_data)
        said = {name: value for name, value in changed.items() if value is not None}
        project_queue().control.set(self.instance.name, unset=[*changed.keys() - said.keys()], by=by, **said)

    def _changed(self, given: dict[str, Any]) -> dict[str, Any]:
        return {name: given[name] for name in self.changed_data}


MANY = 1000


@admin.register(Queue)
class QueueAdmin(ReadOnlyAdmin):
    """The queues: how many jobs are ready, whether they are paused or drained, and their settings."""

    list_display = ("name", "state_shown", "ready", "jobs")
    actions = ("pause", "drain", "resume")
    action_form = Reason
    asks_why = True
    form = SettingsForm
    page = UncountedPaginator
    paused = moment("paused_at", "paused at")
    drained = moment("drained_at", "drained at")
    sections = (
        (None, ("name", "state_shown", "ready", "jobs")),
        ("Paused", ("paused", "paused_by", "paused_why")),
        ("Drained", ("drained", "drained_by", "drained_why")),
        ("Settings", SETTINGS),
    )

    def has_pause_permission(self, request: HttpRequest) -> bool:
        """Who may pause, drain and resume."""
        return allows(request, "pause_queue")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ANN401, ARG002 - Django's call
        """Who may change settings."""
        return allows(request, "change_queue")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:  # noqa: ANN401 - Django's call
        """All but the settings, for those who may change these."""
        shown = super().get_readonly_fields(request, obj)
        if not self.has_change_permission(request, obj):
            return shown
        return [field for field in shown if field not in SETTINGS]

    def save_model(self, request: HttpRequest, obj: Queue, form: Any, change: Any) -> None:  # noqa: ANN401, ARG002 - Django's call
        """Store the settings that were changed."""
        form.store(request.user.get_username())

    def listed(self, rows: QuerySet[Any]) -> list[Queue]:
        """The queues that have a row, and those that do not need one."""
        known = {row.name: row for row in rows}
        return [known.get(name) or Queue(name=name) for name in sorted({*known, *queue_names()})]

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Queue | None:
        """A queue by its name, with a row or without."""
        found: Queue | None = super().get_object(request, object_id, from_field)
        return found or (Queue(name=object_id) if object_id in queue_names() else None)

    def buttons(self, obj: Queue) -> Mapping[str, str]:
        """The actions that change the queue's state."""
        return {
            **({} if obj.paused_at else {"pause": "Pause"}),
            **({} if obj.drained_at else {"drain": "Drain"}),
            **({"resume": "Resume"} if obj.paused_at or obj.drained_at else {}),
        }

    @admin.display(description="state")
    def state_shown(self, queue: Queue) -> SafeString:
        """Active, paused or drained."""
        return as_state("paused" if queue.paused_at else "drained" if queue.drained_at else "active")

    @admin.display(description="ready jobs")
    def ready(self, queue: Queue) -> str:
        """How many jobs are ready, counted up to a limit."""
        count = Job.objects.filter(queue=queue.name, state=JobState.READY)[: MANY + 1].count()
        return f"more than {MANY:,}" if count > MANY else f"{count:,}"

    @admin.display(description="jobs")
    def jobs(self, queue: Queue) -> SafeString:
        """A link to the list of its jobs."""
        return filter_link("queue", queue.name, f"{list_address(Job)}", "show")

    @admin.action(description="Pause selected %(verbose_name_plural)s", permissions=["pause"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:  # noqa: ARG002 - a queue needs no row
        """Stop workers from claiming jobs of these queues."""
        said = _actor_and_reason(request)

        def pause(queue: Queue) -> str:
            project_queue().control.pause(queue.name, **said)
            return "paused"

        self.act(request, _selected_queues(request), pause, "")

    @admin.action(description="Drain selected %(verbose_name_plural)s", permissions=["pause"])
    def drain(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:  # noqa: ARG002 - a queue needs no row
        """Refuse enqueues to these queues; their jobs run."""
        said = _actor_and_reason(request)
        self.act(
            request,
            _selected_queues(request),
            lambda queue: "drained" if project_queue().control.drain(queue.name, **said) else None,
            "drained already",
        )

    @admin.action(description="Resume selected %(verbose_name_plural)s", permissions=["pause"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:  # noqa: ARG002 - a queue needs no row
        """Let workers claim jobs of these queues again, and accept enqueues."""
        self.act(
            request,
            _selected_queues(request),
            lambda queue: (
                "resumed"
                if project_queue().control.resume(queue.name, by=request.user.get_username())
                else None
            ),
            "neither paused nor drained",
        )


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    """The worker processes on the list."""

    list_display = ("__str__", "state_shown", "serves", "slots_shown", "started", "lease", "version")
    actions = ("drain", "resume", "stop", "restart")
    page = UncountedPaginator
    ordering = ("-started_at", "id")
    since = moment("started_at", "started at")
    until = moment("lease_until", "lease ends at")
    asked = moment("asked_at", "asked at")
    blocked_from = moment("blocked_since", "blocked since")
    sections = (
        (None, ("id", "host", "pid", "version", "state_shown")),
        ("Work", ("serves", "slots_shown", "draining", "supervised", "idle", "not_returned")),
        ("Asked from outside", ("asked_slots", "ask_draining", "ask_end", "asked", "asked_by", "answer")),
        ("Blocked event loop", ("blocked_from", "blocked_task", "blocked_job", "blocked_where")),
        ("Times", ("since", "until")),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """With whether its lease holds, by the database's clock."""
        holds = ExpressionWrapper(Q(lease_until__gt=Now()), output_field=BooleanField())
        return super().get_queryset(request).annotate(holds=holds)

    @admin.display(description="state")
    def state_shown(self, worker: Any) -> SafeString:  # noqa: ANN401 - a worker with whether its lease holds
        """Whether it is alive, stops or drains, and whether its event loop is blocked."""
        if not worker.holds:
            return as_state("lost")
        if worker.ask_end and not worker.answer:
            return as_state("stopping")
        if worker.blocked_since:
            return as_state("blocked")
        return as_state("draining" if worker.draining else "alive")

    def has_steer_permission(self, request: HttpRequest) -> bool:
        """Who may ask workers to do something."""
        return allows(request, "steer_worker")

    def buttons(self, obj: Worker) -> Mapping[str, str]:
        """What can be asked of a worker that listens."""
        if obj.minimum is None:
            return {}
        drain = {"resume": "Resume"} if obj.draining else {"drain": "Drain"}
        return {**drain, "stop": "Stop", **({"restart": "Restart"} if obj.supervised else {})}

    @admin.action(description="Drain selected %(verbose_name_plural)s", permissions=["steer"])
    def drain(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Have them claim no more jobs."""
        self._ask(request, queryset, "drain", "asked to drain")

    @admin.action(description="Resume selected %(verbose_name_plural)s", permissions=["steer"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Have them claim jobs again."""
        self._ask(request, queryset, "resume", "asked to claim jobs again")

    @admin.action(description="Stop selected %(verbose_name_plural)s", permissions=["steer"])
    def stop(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Stop them gracefully."""
        self._ask(request, queryset, "stop", "asked to stop")

    @admin.action(description="Restart selected %(verbose_name_plural)s", permissions=["steer"])
    def restart(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Stop them, and have their supervisors start new processes."""
        self._ask(request, queryset, "restart", "asked to restart")

    def _ask(self, request: HttpRequest, queryset: QuerySet[Any], method: str, said: str) -> None:
        by = f"{request.user} (admin)"

        def ask(worker: Worker) -> str:
            getattr(project_queue().workers, method)(str(worker.id), by=by)
            return said

        self.act(request, queryset, ask, "")

    @admin.display(description="slots")
    def slots_shown(self, worker: Worker) -> str:
        """How many it has, and between which numbers it chooses."""
        now = worker.concurrency if worker.slots is None else worker.slots
        bounds = Bounds(worker.minimum or worker.concurrency, worker.concurrency)
        return f"{now}" if bounds.fixed else f"{now} of {bounds}"

    @admin.display(description="slots asked for")
    def asked_slots(self, worker: Worker) -> str:
        """The number, or the minimum and the maximum; a dash for none."""
        if worker.ask_minimum is None or worker.ask_maximum is None:
            return "-"
        return str(Bounds(worker.ask_minimum, worker.ask_maximum))

    @admin.display(description="queues")
    def serves(self, worker: Worker) -> str:
        """The queues it serves."""
        return "all" if worker.queues is None else ", ".join(worker.queues)

    @admin.display(description="started")
    def started(self, worker: Worker) -> SafeString | str:
        """How long ago it started."""
        return as_ago(worker.started_at)

    @admin.display(description="lease ends")
    def lease(self, worker: Worker) -> SafeString | str:
        """When the lease passes, unless it is renewed."""
        return as_ago(worker.lease_until)


def _selected_queues(request: HttpRequest) -> list[Queue]:
    return [Queue(name=name) for name in request.POST.getlist(ACTION_CHECKBOX_NAME)]


def _actor_and_reason(request: HttpRequest) -> dict[str, str | None]:
    return {"by": request.user.get_username(), "why": request.POST.get("why", "").strip() or None}
