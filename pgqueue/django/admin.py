"""The admin: jobs, dead jobs, queues and workers, to look at and to act upon."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import BooleanField, ExpressionWrapper, Q, QuerySet, TextField, Value
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Cast, Concat, Left, Now
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from pgqueue.django.admin_filters import QueueFilter, ReasonFilter, StateFilter, TaskFilter, queue_names
from pgqueue.django.admin_pages import ReadOnlyAdmin, Uncounted, address, allows, list_address, moment
from pgqueue.django.admin_search import HELP, search
from pgqueue.django.admin_show import SUMMARY, as_ago, as_errors, as_json, as_state, breakable, shortened
from pgqueue.django.djangoqueue import project_queue
from pgqueue.django.models import DeadJob, Job, Queue, Worker
from pgqueue.values.job import ENDED, JobState

ON_RECORD_BY_KEY = Q(state__in=sorted(set(JobState) - {JobState.SUCCEEDED, JobState.CANCELLED}))
MANY = 1000


class EnqueuedAdmin(ReadOnlyAdmin):
    """What the lists and pages of jobs and of dead jobs have in common."""

    ordering = ("-id",)
    search_fields = ("id",)
    search_help_text = HELP
    keyed = Q()
    created = moment("created_at", "enqueued at")
    due = moment("run_at", "due at")
    started = moment("started_at", "last started at")

    def has_retry_permission(self, request: HttpRequest) -> bool:
        """Who may retry jobs."""
        return allows(request, "retry_job")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """What the term describes; it spawns no duplicates."""
        del request
        return search(queryset, search_term, keyed=self.keyed), False

    def listed(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Without what may be long, but for its beginning."""
        return rows.defer("args", "errors").annotate(args_start=Left(Cast("args", TextField()), SUMMARY))

    @admin.display(description="task")
    def task_link(self, job: Job | DeadJob) -> SafeString:
        """The task; a click narrows the list to it."""
        return _narrowed("task", job.task)

    @admin.display(description="queue")
    def queue_link(self, job: Job | DeadJob) -> SafeString:
        """The queue, likewise."""
        return _narrowed("queue", job.queue)

    @admin.display(description="arguments")
    def args_summary(self, job: Any) -> str:  # noqa: ANN401 - a job with the beginning of its arguments
        """The beginning of the arguments."""
        return shortened(job.args_start)

    @admin.display(description="arguments")
    def args_shown(self, job: Job | DeadJob) -> SafeString | str:
        """The arguments."""
        return as_json(job.args)

    @admin.display(description="attempts")
    def tries(self, job: Job | DeadJob) -> str:
        """How many attempts of how many."""
        return f"{job.attempts} of {job.max_attempts}"

    @admin.display(description="errors")
    def errors_shown(self, job: Job | DeadJob) -> SafeString | str:
        """How attempts failed."""
        return as_errors(job.errors)

    @admin.action(description="Retry selected %(verbose_name_plural)s", permissions=["retry"])
    def retry(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Make jobs ready at once."""
        self.act(
            request,
            queryset,
            lambda job: "retried" if project_queue().retry(job.pk) else None,
            "neither scheduled nor dead, or their unique key is taken",
        )


@admin.register(Job)
class JobAdmin(EnqueuedAdmin):
    """Every job there is a record of."""

    list_display = (
        "id",
        "task_link",
        "args_summary",
        "queue_link",
        "state_shown",
        "since",
        "tries",
    )
    list_filter = (StateFilter, QueueFilter, TaskFilter)
    actions = ("retry", "cancel")
    keyed = ON_RECORD_BY_KEY
    ended = moment("ended_at", "ended at")
    sections = (
        (None, ("id", "task", "queue", "state_shown", "reason")),
        ("Call", ("args_shown", "result_shown")),
        ("Attempts", ("tries", "errors_shown", "worker")),
        ("Times", ("created", "due", "started", "ended")),
        ("Options", ("priority", "unique_key", "collisions")),
    )

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Who may cancel jobs."""
        return allows(request, "cancel_job")

    def listed(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Without the result, too."""
        return super().listed(rows).defer("args", "errors", "result")

    def buttons(self, obj: Job) -> Mapping[str, str]:
        """What can be done about a job in its state."""
        retry = {"retry": "Run now" if obj.state == JobState.SCHEDULED else "Retry"}
        cancel = {"cancel": "Cancel"}
        return {
            **(retry if obj.state in {JobState.SCHEDULED, JobState.DEAD} else {}),
            **(cancel if obj.state not in ENDED else {}),
        }

    @admin.display(description="state")
    def state_shown(self, job: Job) -> SafeString:
        """Where it stands."""
        return as_state(job.state)

    @admin.display(description="since / due")
    def since(self, job: Job) -> SafeString | str:
        """When it came to where it stands, or is to leave it."""
        return as_ago(job.ended_at or job.started_at or job.run_at)

    @admin.display(description="result")
    def result_shown(self, job: Job) -> SafeString | str:
        """What the task returned."""
        return as_json(job.result)

    @admin.display(description="worker")
    def worker(self, job: Job) -> SafeString | str:
        """The worker of the last attempt; those that run have a page."""
        if job.worker_id is None:
            return "-"
        if job.state != JobState.RUNNING:
            return str(job.worker_id)
        return format_html('<a href="{}">{}</a>', address(Worker, job.worker_id), job.worker_id)

    @admin.action(description="Cancel selected %(verbose_name_plural)s", permissions=["cancel"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """End jobs that wait, and ask the workers of those that run to stop them."""
        told = {JobState.CANCELLED: "cancelled", JobState.RUNNING: "told to stop", None: None}
        self.act(request, queryset, lambda job: told[project_queue().cancel(job.pk)], "already ended")


@admin.register(DeadJob)
class DeadJobAdmin(EnqueuedAdmin):
    """Jobs that will not run again unless somebody retries them. To delete one is to purge it."""

    list_display = ("id", "task_link", "args_summary", "queue_link", "reason", "last_error", "died", "tries")
    list_filter = (ReasonFilter, QueueFilter, TaskFilter)
    actions = ("retry",)
    ended = moment("died_at", "died at")
    sections = (
        (None, ("id", "job", "task", "queue", "reason")),
        ("Call", ("args_shown",)),
        ("Attempts", ("tries", "errors_shown", "worker_id")),
        ("Times", ("created", "due", "started", "ended")),
        ("Options", ("priority", "unique_key", "collisions")),
    )

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ANN401, ARG002 - Django's call
        """Who may purge."""
        return allows(request, "delete_deadjob")

    def listed(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """With the beginning of the last error."""
        last = KeyTransform(-1, "errors")
        told = Concat(
            KeyTextTransform("type", last), Value(": ", TextField()), KeyTextTransform("message", last)
        )
        return super().listed(rows).annotate(error_start=Left(told, SUMMARY, output_field=TextField()))

    def buttons(self, obj: DeadJob) -> Mapping[str, str]:  # noqa: ARG002 - the same for all
        """What can be done about a dead job; purging it has Django's own button."""
        return {"retry": "Retry"}

    def delete_model(self, request: HttpRequest, obj: DeadJob) -> None:  # noqa: ARG002 - Django's call
        """Purge one."""
        project_queue().purge_dead([obj.pk])

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Purge several; tell of those that somebody has retried meanwhile."""
        asked = list(queryset.values_list("pk", flat=True))
        purged = project_queue().purge_dead(asked)
        if purged < len(asked):
            told = f"{len(asked) - purged} of them had left the dead table meanwhile."
            self.message_user(request, told, messages.WARNING)

    @admin.display(description="job")
    def job(self, dead: DeadJob) -> SafeString:
        """Its page among all jobs, which stays when it is retried."""
        return format_html('<a href="{}">{}</a>', address(Job, dead.pk), dead)

    @admin.display(description="last error")
    def last_error(self, dead: Any) -> str:  # noqa: ANN401 - a dead job with the beginning of its last error
        """How the last attempt failed."""
        return shortened(dead.error_start)

    @admin.display(description="died")
    def died(self, dead: DeadJob) -> SafeString | str:
        """How long ago."""
        return as_ago(dead.died_at)


@admin.register(Queue)
class QueueAdmin(ReadOnlyAdmin):
    """The queues: what waits in them, and whether they are paused."""

    list_display = ("name", "state_shown", "ready", "jobs")
    actions = ("pause", "resume")
    page = Uncounted
    paused = moment("paused_at", "paused at")
    sections = ((None, ("name", "state_shown", "paused", "ready", "jobs")),)

    def has_pause_permission(self, request: HttpRequest) -> bool:
        """Who may pause and resume."""
        return allows(request, "pause_queue")

    def listed(self, rows: QuerySet[Any]) -> list[Queue]:
        """The queues that have a row, and those that do not need one."""
        known = {row.name: row for row in rows}
        return [known.get(name) or Queue(name=name) for name in sorted({*known, *queue_names()})]

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Queue | None:
        """A queue by its name, with a row or without."""
        found: Queue | None = super().get_object(request, object_id, from_field)
        return found or (Queue(name=object_id) if object_id in queue_names() else None)

    def buttons(self, obj: Queue) -> Mapping[str, str]:
        """The one that makes a difference."""
        return {"resume": "Resume"} if obj.paused_at else {"pause": "Pause"}

    @admin.display(description="state")
    def state_shown(self, queue: Queue) -> SafeString:
        """Open or paused."""
        return as_state("paused" if queue.paused_at else "open")

    @admin.display(description="ready jobs")
    def ready(self, queue: Queue) -> str:
        """How many jobs are ready, counted up to a limit."""
        count = Job.objects.filter(queue=queue.name, state=JobState.READY)[: MANY + 1].count()
        return f"more than {MANY:,}" if count > MANY else f"{count:,}"

    @admin.display(description="jobs")
    def jobs(self, queue: Queue) -> SafeString:
        """Where its jobs are listed."""
        return _narrowed("queue", queue.name, f"{list_address(Job)}", "show")

    @admin.action(description="Pause selected %(verbose_name_plural)s", permissions=["pause"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:  # noqa: ARG002 - a queue needs no row
        """Stop queues from being claimed from."""
        self.act(request, _selected(request), _pause, "")

    @admin.action(description="Resume selected %(verbose_name_plural)s", permissions=["pause"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:  # noqa: ARG002 - a queue needs no row
        """Let paused queues be claimed from again."""
        self.act(
            request,
            _selected(request),
            lambda queue: "resumed" if project_queue().resume(queue.name) else None,
            "not paused",
        )


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    """The worker processes on the list."""

    list_display = ("__str__", "state_shown", "serves", "concurrency", "started", "lease", "version")
    page = Uncounted
    ordering = ("-started_at", "id")
    since = moment("started_at", "started at")
    until = moment("lease_until", "lease ends at")
    sections = (
        (None, ("id", "host", "pid", "version", "state_shown")),
        ("Work", ("serves", "concurrency", "asleep")),
        ("Times", ("since", "until")),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """With whether its lease holds, by the database's clock."""
        holds = ExpressionWrapper(Q(lease_until__gt=Now()), output_field=BooleanField())
        return super().get_queryset(request).annotate(holds=holds)

    @admin.display(description="state")
    def state_shown(self, worker: Any) -> SafeString:  # noqa: ANN401 - a worker with whether its lease holds
        """Whether it is alive."""
        return as_state("alive" if worker.holds else "lost")

    @admin.display(description="queues")
    def serves(self, worker: Worker) -> str:
        """The queues it serves."""
        return "all" if worker.queues is None else ", ".join(worker.queues)

    @admin.display(description="started")
    def started(self, worker: Worker) -> SafeString | str:
        """How long ago."""
        return as_ago(worker.started_at)

    @admin.display(description="lease ends")
    def lease(self, worker: Worker) -> SafeString | str:
        """In how long, unless it is renewed."""
        return as_ago(worker.lease_until)


def _narrowed(field: str, value: str, where: str = "", text: str | None = None) -> SafeString:
    """A link to the list, narrowed to a value."""
    return format_html('<a href="{}?{}">{}</a>', where, urlencode({field: value}), text or breakable(value))


def _selected(request: HttpRequest) -> list[Queue]:
    return [Queue(name=name) for name in request.POST.getlist(ACTION_CHECKBOX_NAME)]


def _pause(queue: Queue) -> str:
    project_queue().pause(queue.name)
    return "paused"
