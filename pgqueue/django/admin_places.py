"""The admin's pages of queues, with a form for their settings, and of workers: both as the dashboard and the shell have them."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ActionForm
from django.db.models import QuerySet
from django.http import HttpRequest

from pgqueue.django.admin_filters import queue_names
from pgqueue.django.admin_pages import (
    LENGTH,
    ReadOnlyAdmin,
    action,
    column,
    filter_link,
    list_address,
    may,
    moment,
    show_refusal,
    with_facts,
)
from pgqueue.django.admin_show import as_ago, as_state
from pgqueue.django.djangoqueue import project_queue
from pgqueue.django.models import Job, Queue, Worker
from pgqueue.errors import PgQueueError
from pgqueue.store.audit import reason
from pgqueue.values.queues.settings import WHEN_FULL, QueueSettings
from pgqueue.values.queues.standing import STATES, QueueStanding

SETTINGS = QueueSettings.__struct_fields__
COMPARED: dict[str, Any] = {"required": False, "show_hidden_initial": True}
"""What was shown comes back with the form: what another operator stores meanwhile is not taken for a change."""
_number = partial(forms.IntegerField, **COMPARED)
_length = partial(forms.DurationField, **COMPARED)


class Reason(ActionForm):
    """Beside the list of actions: why a queue is paused or closed."""

    why = forms.CharField(required=False, label="Why", max_length=1000)


class SettingsForm(forms.ModelForm):  # type: ignore[type-arg]  # Django's classes take no parameter at run time
    """What holds for the jobs of a queue where neither their enqueue nor their task says it. Empty: the queue does not say it."""

    priority = _number(help_text="From -100 to 100; a job with a higher one runs sooner.")
    max_attempts = _number(help_text="A job is dead after this many failed attempts.")
    timeout = _length(help_text=f"How long an attempt may take. {LENGTH}")
    keep_history = _length(
        help_text=f"How long ended jobs are kept; 0: jobs that succeed leave no record. {LENGTH}"
    )
    keep_dead = _length(help_text=f"How long dead jobs are kept. {LENGTH}")
    backlog = _number(help_text="From how many ready jobs on the queue is full.")
    when_full = forms.TypedChoiceField(
        **COMPARED,
        choices=[("", "not set"), *((one, one) for one in WHEN_FULL)],
        empty_value=None,
        help_text="Refuse: an enqueue to a full queue fails. Warn, and not set: it logs a warning.",
    )
    ageing = _length(help_text=f"The wait that is worth one priority. {LENGTH}")
    ageing_to = _number(help_text="The highest priority that waiting jobs get so, 1 to 100; not set: 100.")

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
                show_refusal(self, str(error))
        return given

    def store(self, by: str) -> None:
        """Store the settings that were changed; the others stay as they are now."""
        changed = self._changed(self.cleaned_data)
        said = {name: value for name, value in changed.items() if value is not None}
        project_queue().control.set(self.instance.name, unset=[*changed.keys() - said.keys()], by=by, **said)

    def _changed(self, given: dict[str, Any]) -> dict[str, Any]:
        return {name: given[name] for name in self.changed_data}


def _queue_row(one: QueueStanding) -> Queue:
    hidden = project_queue().redaction.shown(one)
    said = ("paused_at", "paused_by", "paused_why", "closed_at", "closed_by", "closed_why")
    row = Queue(
        name=one.queue,
        **{name: getattr(hidden, name) for name in said},
        **{name: getattr(one.settings, name) for name in SETTINGS},
    )
    row.standing = one
    return row


def _jobs_in(state: str) -> Any:  # noqa: ANN401 - a method of an admin
    def count(queue: Queue) -> str:
        one = queue.standing
        return f"{'~' * (state in one.estimated)}{getattr(one, state):,}"

    return column(state, count)


def _pause(queue: Queue, by: str) -> str:
    project_queue().control.pause(queue.name, why=reason(), by=by)
    return "paused"


def _close(queue: Queue, by: str) -> str | None:
    return "closed" if project_queue().control.close(queue.name, why=reason(), by=by) else None


def _resume(queue: Queue, by: str) -> str | None:
    return "resumed" if project_queue().control.resume(queue.name, by=by) else None


@admin.register(Queue)
class QueueAdmin(ReadOnlyAdmin):
    """The queues: how many jobs are in which state (~ about), whether they are paused or closed, and their settings."""

    list_display = ("name", "state_shown", *STATES, "jobs")
    actions = ("pause", "close", "resume")
    action_form = Reason
    asks_why = True
    needs_row = False
    form = SettingsForm
    paused = moment("paused_at", "paused at")
    closed = moment("closed_at", "closed at")
    sections = (
        (None, ("name", "state_shown", *STATES, "jobs")),
        ("Paused", ("paused", "paused_by", "paused_why")),
        ("Closed", ("closed", "closed_by", "closed_why")),
        ("Settings", SETTINGS),
    )
    blocked, scheduled, ready, running, dead = map(
        _jobs_in, ("blocked", "scheduled", "ready", "running", "dead")
    )
    state_shown = column(
        "state",
        lambda queue: as_state("paused" if queue.paused_at else "closed" if queue.closed_at else "active"),
    )
    jobs = column("jobs", lambda queue: filter_link("queue", queue.name, list_address(Job), "show"))
    has_pause_permission = may("pause_queue")
    pause = action("Pause selected {}", "pause", _pause)
    close = action("Close selected {}", "pause", _close, "closed already")
    resume = action("Resume selected {}", "pause", _resume, "neither paused nor closed")
    has_change_permission = may("change_queue")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:  # noqa: ANN401 - Django's call
        """All but the settings, for those who may change these."""
        shown = super().get_readonly_fields(request, obj)
        if not self.has_change_permission(request, obj):
            return shown
        return [field for field in shown if field not in SETTINGS]

    def save_model(self, request: HttpRequest, obj: Queue, form: Any, change: Any) -> None:  # noqa: ANN401, ARG002 - Django's call
        """Store the settings that were changed."""
        form.store(request.user.get_username())

    def listed(self, rows: QuerySet[Any]) -> list[Queue]:  # noqa: ARG002 - a queue needs no row
        """Every queue that is known."""
        return [_queue_row(one) for one in project_queue().insight.queues()]

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:  # noqa: ANN401 - an instance of the model
        """A queue by its name; one of a task that has had no job yet, too."""
        found = super().get_object(request, object_id, from_field)
        return found or (_queue_row(QueueStanding(queue=object_id)) if object_id in queue_names() else None)

    def buttons(self, obj: Queue) -> Mapping[str, str]:
        """The actions that change the queue's state."""
        return {
            **({} if obj.paused_at else {"pause": "Pause"}),
            **({} if obj.closed_at else {"close": "Close"}),
            **({"resume": "Resume"} if obj.paused_at or obj.closed_at else {}),
        }


def _slots(worker: Worker) -> str:
    one = worker.status
    return f"{one.slots}" if one.bounds.fixed else f"{one.slots} of {one.bounds}"


def _steer(label: str, method: str, said: str) -> Any:  # noqa: ANN401 - a method of an admin
    def ask(worker: Worker, by: str) -> str:
        getattr(project_queue().workers, method)(str(worker.id), by=by)
        return said

    return action(label, "steer", ask)


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    """The workers that are known, at their last heartbeats."""

    list_display = ("__str__", "state_shown", "serves", "slots_shown", "started", "version")
    actions = ("quiet", "resume", "stop", "restart")
    asked = moment("asked_at", "asked at")
    sections = (
        (None, ("id", "host", "pid", "version", "state_shown", "since")),
        ("Work", ("serves", "slots_shown", "not_returned", "blocked", "blocked_task", "blocked_where")),
        ("Asked from outside", ("asked_for", "asked", "asked_by", "answer_shown")),
    )
    since = moment("started_at", "started at")
    blocked = moment("blocked_since", "event loop blocked since")
    state_shown = column("state", lambda worker: as_state(worker.status.state))
    serves = column("queues", lambda worker: ", ".join(worker.status.queues or ["all"]))
    slots_shown = column("slots", _slots)
    started = column("started", lambda worker: as_ago(worker.started_at))
    asked_for = column("asked", lambda worker: worker.status.asked.verb if worker.asked_at else "-")
    answer_shown = column("answer", lambda worker: project_queue().redaction.text(worker.answer) or "-")
    has_steer_permission = may("steer_worker")
    quiet = _steer("Make selected {} quiet", "quiet", "asked to be quiet")
    resume = _steer("Resume selected {}", "resume", "asked to claim jobs again")
    stop = _steer("Stop selected {}", "stop", "asked to stop")
    restart = _steer("Restart selected {}", "restart", "asked to restart")

    def listed(self, rows: Iterable[Any]) -> list[Worker]:
        """Every worker that is known, with what the queue says of it."""
        return with_facts(rows, "status", {one.id: one for one in project_queue().workers.list()})

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Worker | None:  # noqa: ANN401 - Django's call
        """A worker by its id."""
        row = super().get_object(request, object_id, from_field)
        return next(iter(self.listed([row] if row else [])), None)

    def buttons(self, obj: Worker) -> Mapping[str, str]:
        """What can be asked of a worker that listens."""
        if not obj.status.listens:
            return {}
        claiming = {"resume": "Resume"} if obj.quiet else {"quiet": "Make quiet"}
        return {**claiming, "stop": "Stop", **({"restart": "Restart"} if obj.supervised else {})}

    def on_dashboard(self, obj: Worker) -> str:  # noqa: ARG002 - they are on one page
        """The page of workers."""
        return "workers"
