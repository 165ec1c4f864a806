"""The admin's pages of jobs and dead jobs, with their actions; queues and workers are in ``admin_places.py``."""

from collections.abc import Mapping
from typing import Any

from django.contrib import admin, messages
from django.db.models import Q, QuerySet, TextField, Value
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Cast, Concat, Left
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from pgqueue.django.admin_filters import (
    HELP,
    QueueFilter,
    ReasonFilter,
    StateFilter,
    TaskFilter,
    UnsearchableText,
    search,
)
from pgqueue.django.admin_limits import LimitAdmin, ShareAdmin
from pgqueue.django.admin_pages import (
    ReadOnlyAdmin,
    address,
    allows,
    filter_link,
    moment,
)
from pgqueue.django.admin_places import QueueAdmin, WorkerAdmin
from pgqueue.django.admin_schedules import ScheduleAdmin
from pgqueue.django.admin_show import (
    SUMMARY,
    as_ago,
    as_errors,
    as_json,
    as_reason,
    as_state,
    shorten_text,
)
from pgqueue.django.djangoqueue import project_queue
from pgqueue.django.models import DeadJob, Job, Worker
from pgqueue.values.bulk.operation import BlockedRetry
from pgqueue.values.jobs.job import ENDED, JobState
from pgqueue.values.payloads.codec import JobPart, Kind, opened_errors, opened_value

__all__ = [
    "DeadJobAdmin",
    "JobAdmin",
    "LimitAdmin",
    "QueueAdmin",
    "ScheduleAdmin",
    "ShareAdmin",
    "WorkerAdmin",
]  # importing the last five registers them

ON_RECORD_BY_KEY = Q(state__in=sorted(set(JobState) - {JobState.SUCCEEDED, JobState.CANCELLED}))

NAMED = 5
"""Jobs that a message names one by one."""
LONG = ("args", "errors", "meta")
"""Fields that may be long, and so are read only for the page of one job."""


class CommonJobAdmin(ReadOnlyAdmin):
    """The common part of the lists and pages of jobs and of dead jobs."""

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
        """The rows that match the term; it makes no duplicates."""
        try:
            return search(queryset, search_term, keyed=self.keyed), False
        except UnsearchableText as error:
            self.message_user(request, str(error), messages.ERROR)
            return queryset.none(), False

    def listed(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Without the long fields, but with the beginning of the arguments."""
        return rows.defer(*LONG).annotate(args_start=Left(Cast("args", TextField()), SUMMARY))

    @admin.display(description="task")
    def task_link(self, job: Job | DeadJob) -> SafeString:
        """The task; a click filters the list by it."""
        return filter_link("task", job.task)

    @admin.display(description="queue")
    def queue_link(self, job: Job | DeadJob) -> SafeString:
        """The queue; a click filters the list by it."""
        return filter_link("queue", job.queue)

    @admin.display(description="arguments")
    def args_summary(self, job: Any) -> str:  # noqa: ANN401 - a job with the beginning of its arguments
        """The beginning of the arguments."""
        return shorten_text(job.args_start)

    @admin.display(description="arguments")
    def args_shown(self, job: Job | DeadJob) -> SafeString | str:
        """The arguments."""
        return as_json(opened_value(project_queue().codec, job.args, _part("args", job)))

    @admin.display(description="sent along")
    def meta_shown(self, job: Job | DeadJob) -> SafeString | str:
        """What the enqueuer sent along for other programs."""
        return as_json(job.meta)

    @admin.display(description="reason")
    def reason_shown(self, job: Job | DeadJob) -> str:
        """Why it is dead, and what that means."""
        return as_reason(job.reason)

    @admin.display(description="attempts")
    def tries(self, job: Job | DeadJob) -> str:
        """The spent and the allowed attempts."""
        return f"{job.attempts} of {job.max_attempts}"

    @admin.display(description="errors")
    def errors_shown(self, job: Job | DeadJob) -> SafeString | str:
        """How attempts failed."""
        return as_errors(opened_errors(project_queue().codec, job.errors, _part("error", job)))

    @admin.action(description="Retry selected %(verbose_name_plural)s", permissions=["retry"])
    def retry(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Make dead jobs ready again, with all their attempts."""
        held: list[BlockedRetry] = []

        def retry(job: Any) -> str | None:  # noqa: ANN401 - a job or a dead job
            done = project_queue().retry(job.pk)
            held.extend(done.held)
            return "retried" if done else None

        refused = "not dead, or their unique key is taken"
        self.act(request, queryset.defer(*LONG), retry, refused)
        for one in held[:NAMED]:
            self.message_user(request, _why_held(one), messages.WARNING)


@admin.register(Job)
class JobAdmin(CommonJobAdmin):
    """Every job that has a record."""

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
    actions = ("run_now", "retry", "cancel")
    keyed = ON_RECORD_BY_KEY
    ended = moment("ended_at", "ended at")
    sections = (
        (None, ("id", "task", "queue", "state_shown", "reason_shown")),
        ("Call", ("args_shown", "result_shown")),
        ("Attempts", ("tries", "errors_shown", "worker")),
        ("Times", ("created", "due", "started", "ended")),
        ("Options", ("priority", "unique_key", "collisions", "meta_shown")),
    )

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Who may cancel jobs."""
        return allows(request, "cancel_job")

    def listed(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Without the result, too."""
        return super().listed(rows).defer(*LONG, "result")

    def buttons(self, obj: Job) -> Mapping[str, str]:
        """The actions that a job's state allows."""
        run_now, retry, cancel = {"run_now": "Run now"}, {"retry": "Retry"}, {"cancel": "Cancel"}
        return {
            **(run_now if obj.state == JobState.SCHEDULED else {}),
            **(retry if obj.state == JobState.DEAD else {}),
            **(cancel if obj.state not in ENDED else {}),
        }

    @admin.display(description="state")
    def state_shown(self, job: Job) -> SafeString:
        """The job's state."""
        return as_state(job.state)

    @admin.display(description="since / due")
    def since(self, job: Job) -> SafeString | str:
        """When the job ended, started or is due."""
        return as_ago(job.ended_at or job.started_at or job.run_at)

    @admin.display(description="result")
    def result_shown(self, job: Job) -> SafeString | str:
        """What the task returned."""
        return as_json(opened_value(project_queue().codec, job.result, _part("result", job)))

    @admin.display(description="worker")
    def worker(self, job: Job) -> SafeString | str:
        """The worker of the last attempt; a running job's worker has a page."""
        if job.worker_id is None:
            return "-"
        if job.state != JobState.RUNNING:
            return str(job.worker_id)
        return format_html('<a href="{}">{}</a>', address(Worker, job.worker_id), job.worker_id)

    @admin.action(description="Run selected %(verbose_name_plural)s now", permissions=["retry"])
    def run_now(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Make scheduled jobs ready before their time."""
        control, by = project_queue().control, request.user.get_username()
        self.act(
            request,
            queryset.defer(*LONG, "result"),
            lambda job: "ready" if control.run_now(job.pk, by=by) else None,
            "not scheduled",
        )

    @admin.action(description="Cancel selected %(verbose_name_plural)s", permissions=["cancel"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """End waiting jobs, and ask the workers of running jobs to stop them."""
        outcomes = {JobState.CANCELLED: "cancelled", JobState.RUNNING: "told to stop", None: None}
        self.act(
            request,
            queryset.defer(*LONG, "result"),
            lambda job: outcomes[project_queue().cancel(job.pk)],
            "already ended",
        )


@admin.register(DeadJob)
class DeadJobAdmin(CommonJobAdmin):
    """Jobs that will not run again unless a user retries them. To delete one is to purge it."""

    list_display = (
        "id",
        "task_link",
        "args_summary",
        "queue_link",
        "reason_shown",
        "last_error",
        "died",
        "tries",
    )
    list_filter = (ReasonFilter, QueueFilter, TaskFilter)
    actions = ("retry",)
    ended = moment("died_at", "died at")
    sections = (
        (None, ("id", "job", "task", "queue", "reason_shown")),
        ("Call", ("args_shown",)),
        ("Attempts", ("tries", "errors_shown", "worker_id")),
        ("Times", ("created", "due", "started", "ended")),
        ("Options", ("priority", "unique_key", "collisions", "meta_shown")),
    )

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ANN401, ARG002 - Django's call
        """Who may purge."""
        return allows(request, "delete_deadjob")

    def listed(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """With the beginning of the last error."""
        last = KeyTransform(-1, "errors")
        text = Concat(
            KeyTextTransform("type", last), Value(": ", TextField()), KeyTextTransform("message", last)
        )
        return super().listed(rows).annotate(error_start=Left(text, SUMMARY, output_field=TextField()))

    def buttons(self, obj: DeadJob) -> Mapping[str, str]:  # noqa: ARG002 - the same for all
        """The actions on a dead job; to purge it there is Django's own button."""
        return {"retry": "Retry"}

    def delete_model(self, request: HttpRequest, obj: DeadJob) -> None:
        """Purge one."""
        project_queue().control.dead(ids=[obj.pk]).purge(by=request.user.get_username())

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Purge several; report those that were retried or purged meanwhile."""
        selected = list(queryset.values_list("pk", flat=True))
        purged = project_queue().control.dead(ids=selected).purge(by=request.user.get_username()).done
        if purged < len(selected):
            text = f"{len(selected) - purged} of them were no longer in the dead table."
            self.message_user(request, text, messages.WARNING)

    @admin.display(description="job")
    def job(self, dead: DeadJob) -> SafeString:
        """A link to its page among all jobs, which stays when it is retried."""
        return format_html('<a href="{}">{}</a>', address(Job, dead.pk), dead)

    @admin.display(description="last error")
    def last_error(self, dead: Any) -> str:  # noqa: ANN401 - a dead job with the beginning of its last error
        """How the last attempt failed."""
        return shorten_text(dead.error_start)

    @admin.display(description="died")
    def died(self, dead: DeadJob) -> SafeString | str:
        """How long ago it died."""
        return as_ago(dead.died_at)


def _why_held(held: BlockedRetry) -> SafeString:
    if held.twin is None:
        return format_html(
            "Job {} stays dead: the live job with its unique key has just ended. Retry again.", held.id
        )
    return format_html(
        'Job {} stays dead: live <a href="{}">job {}</a> has its unique key {}. Cancel that job, or wait until it has ended, '
        "and retry again; or retry without the key: pgqueue dead retry --without-key {}",
        held.id, address(Job, held.twin), held.twin, held.unique_key, held.id,
    )  # fmt: skip


def _part(kind: Kind, job: Job | DeadJob) -> JobPart:
    # A field may have any value, since SQL can write it.
    return JobPart(kind, job.task, job.meta if isinstance(job.meta, dict) else None)
