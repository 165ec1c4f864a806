"""The admin's pages of jobs and dead jobs, with their actions; queues and workers are in ``admin_places.py``."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from django.contrib import admin, messages
from django.db.models import Case, F, Q, QuerySet, TextField, Value, When
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Cast, Concat, Left, Length
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from pgqueue.django.admin_filters import (
    BY_QUEUE,
    BY_REASON,
    BY_STATE,
    BY_TASK,
    HELP,
    UnsearchableText,
    search,
)
from pgqueue.django.admin_limits import LimitAdmin, ShareAdmin
from pgqueue.django.admin_pages import (
    NewestFirst,
    ReadOnlyAdmin,
    action,
    address,
    column,
    filter_link,
    may,
    moment,
)
from pgqueue.django.admin_places import QueueAdmin, WorkerAdmin
from pgqueue.django.admin_schedules import ScheduleAdmin
from pgqueue.django.admin_show import as_ago, as_errors, as_json, as_reason, as_state, shorten_text
from pgqueue.django.djangoqueue import project_queue
from pgqueue.django.models import DeadJob, Job, JsonField, Worker
from pgqueue.values.bulk.operation import BlockedRetry
from pgqueue.values.jobs.job import ARGS_NOT_KEPT, ENDED, JobState
from pgqueue.values.payloads.codec import JobPart, Kind, opened_errors, opened_value
from pgqueue.values.secret_forms import SecretForms

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
UNASKED = frozenset({*LONG, "result", "unique_key"})
"""Fields by which addresses do not filter: the answers would tell what is hidden in them."""
LISTED_ARGS = 10_000
"""Characters of arguments that are read for a list."""
LISTED_ERROR = 2_000
"""Characters of an error that are read for a list: it is cut to fewer once its secrets are hidden."""
CANCELLED = {JobState.CANCELLED: "cancelled", JobState.RUNNING: "told to stop", None: None}


class Shown(NamedTuple):
    """The values of a job as people see them."""

    args: object
    meta: object
    result: object
    errors: object
    unique_key: str | None


def shown(job: Any) -> Shown:  # noqa: ANN401 - a job or a dead job
    """The values of a job, decoded, without its secrets."""
    if "pgqueue_shown" not in job.__dict__:
        codec, hides = project_queue().codec, project_queue().redaction
        args = opened_value(codec, job.args, _part("args", job))
        result = opened_value(codec, getattr(job, "result", None), _part("result", job))
        errors = opened_errors(codec, job.errors, _part("error", job))
        secrets = hides.secrets_in(args, result, job.meta)
        job.pgqueue_shown = Shown(
            hides.value(args),
            hides.value(job.meta),
            hides.value(result),
            hides.shown(errors, secrets=secrets),
            hides.text(job.unique_key, secrets),
        )
    found: Shown = job.pgqueue_shown
    return found


def _part(kind: Kind, job: Any) -> JobPart:  # noqa: ANN401 - a job or a dead job
    # A field may have any value, since SQL can write it.
    return JobPart(kind, job.task, job.meta if isinstance(job.meta, dict) else None)


def _args_summary(job: Any) -> str:  # noqa: ANN401 - a job with the beginning of its arguments
    args = project_queue().redaction.value(job.args_start)
    try:
        return "(long)" if args is None else shorten_text(json.dumps(args, ensure_ascii=False))
    except RecursionError:
        return "nested too deeply to be shown here"


def _last_error(job: Any) -> str:  # noqa: ANN401 - a dead job with the beginning of its last error
    return shorten_text(project_queue().redaction.text(job.error_start, _listed_secrets(job)))


def _listed_secrets(job: Any) -> SecretForms:  # noqa: ANN401 - a job with the beginning of its arguments
    args = {ARGS_NOT_KEPT: 0} if job.args_start is None else job.args_start
    return project_queue().redaction.secrets_in(args)


def _worker(job: Job) -> SafeString | str:
    if job.worker_id is None or job.state != JobState.RUNNING:
        return str(job.worker_id or "-")
    return format_html('<a href="{}">{}</a>', address(Worker, job.worker_id), job.worker_id)


class CommonJobAdmin(ReadOnlyAdmin):
    """The common part of the lists and pages of jobs and of dead jobs."""

    ordering = ("-id",)
    page = NewestFirst
    search_fields = ("id",)
    search_help_text = HELP
    keyed = Q()
    left_out: tuple[str, ...] = LONG
    created = moment("created_at", "enqueued at")
    due = moment("run_at", "due at")
    started = moment("started_at", "last started at")
    task_link = column("task", lambda job: filter_link("task", job.task))
    queue_link = column("queue", lambda job: filter_link("queue", job.queue))
    args_summary = column("arguments", _args_summary)
    args_shown = column("arguments", lambda job: as_json(shown(job).args))
    meta_shown = column("sent along", lambda job: as_json(shown(job).meta))
    key_shown = column("unique key", lambda job: shown(job).unique_key or "-")
    reason_shown = column("reason", lambda job: as_reason(job.reason))
    tries = column("attempts", lambda job: f"{job.attempts} of {job.max_attempts}")
    errors_shown = column("errors", lambda job: as_errors(shown(job).errors))
    has_retry_permission = may("retry_job")

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:  # noqa: ANN401 - Django's call
        """Whether the address may filter so."""
        return lookup.partition("__")[0] not in UNASKED and super().lookup_allowed(lookup, value, request)  # type: ignore[arg-type]  # Django gives it

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
        """Without the long fields, but with arguments that are not long."""
        short = When(Q(pgqueue_length__lte=LISTED_ARGS), then=F("args"))
        length = Length(Cast("args", TextField()))
        start = Case(short, output_field=JsonField())
        return rows.defer(*self.left_out).alias(pgqueue_length=length).annotate(args_start=start)

    def selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:  # noqa: ARG002 - as the base
        """The rows that an action is on, without the long fields."""
        return queryset.defer(*self.left_out)

    def on_dashboard(self, obj: Any) -> str:  # noqa: ANN401 - a job or a dead job
        """The job's page."""
        return f"jobs/{obj.pk}"

    @admin.action(description="Retry selected %(verbose_name_plural)s", permissions=["retry"])
    def retry(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Make dead jobs ready again, with all their attempts."""
        held: list[BlockedRetry] = []

        def retry(job: Any) -> str | None:  # noqa: ANN401 - a job or a dead job
            done = project_queue().retry(job.pk)
            held.extend(done.held)
            return "retried" if done else None

        self.act(request, self.selected(request, queryset), retry, "not dead, or their unique key is taken")
        for one in held[:NAMED]:
            self.message_user(request, _why_held(one), messages.WARNING)


@admin.register(Job)
class JobAdmin(CommonJobAdmin):
    """Every job that has a record."""

    list_display = ("id", "task_link", "args_summary", "queue_link", "state_shown", "since", "tries")
    list_filter = (BY_STATE, BY_QUEUE, BY_TASK)
    actions = ("run_now", "retry", "cancel")
    keyed = ON_RECORD_BY_KEY
    left_out = (*LONG, "result")
    ended = moment("ended_at", "ended at")
    sections = (
        (None, ("id", "task", "queue", "state_shown", "reason_shown")),
        ("Call", ("args_shown", "result_shown")),
        ("Attempts", ("tries", "errors_shown", "worker")),
        ("Times", ("created", "due", "started", "ended")),
        ("Options", ("priority", "key_shown", "collisions", "meta_shown")),
    )
    state_shown = column("state", lambda job: as_state(job.state))
    since = column("since / due", lambda job: as_ago(job.ended_at or job.started_at or job.run_at))
    result_shown = column("result", lambda job: as_json(shown(job).result))
    worker = column("worker", _worker)
    has_cancel_permission = may("cancel_job")
    run_now = action(
        "Run selected {} now",
        "retry",
        lambda job, by: "ready" if project_queue().control.run_now(job.pk, by=by) else None,
        "not scheduled",
    )
    cancel = action(
        "Cancel selected {}",
        "cancel",
        lambda job, by: CANCELLED[project_queue().cancel(job.pk, by=by)],
        "already ended",
    )

    def buttons(self, obj: Job) -> Mapping[str, str]:
        """The actions that a job's state allows."""
        run_now, retry, cancel = {"run_now": "Run now"}, {"retry": "Retry"}, {"cancel": "Cancel"}
        return {
            **(run_now if obj.state == JobState.SCHEDULED else {}),
            **(retry if obj.state == JobState.DEAD else {}),
            **(cancel if obj.state not in ENDED else {}),
        }


@admin.register(DeadJob)
class DeadJobAdmin(CommonJobAdmin):
    """Jobs that will not run again unless a user retries them. To delete one is to purge it."""

    list_display = (
        "id", "task_link", "args_summary", "queue_link", "reason_shown", "last_error", "died", "tries",
    )  # fmt: skip
    list_filter = (BY_REASON, BY_QUEUE, BY_TASK)
    actions = ("retry",)
    ended = moment("died_at", "died at")
    sections = (
        (None, ("id", "job", "task", "queue", "reason_shown")),
        ("Call", ("args_shown",)),
        ("Attempts", ("tries", "errors_shown", "worker_id")),
        ("Times", ("created", "due", "started", "ended")),
        ("Options", ("priority", "key_shown", "collisions", "meta_shown")),
    )
    job = column("job", lambda dead: format_html('<a href="{}">{}</a>', address(Job, dead.pk), dead))
    last_error = column("last error", _last_error)
    died = column("died", lambda dead: as_ago(dead.died_at))

    has_delete_permission = may("delete_deadjob")

    def listed(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """With the beginning of the last error."""
        last = KeyTransform(-1, "errors")
        text = Concat(
            KeyTextTransform("type", last), Value(": ", TextField()), KeyTextTransform("message", last)
        )
        start: Any = Left(text, LISTED_ERROR, output_field=TextField())
        return super().listed(rows).annotate(error_start=start)

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


def _why_held(held: BlockedRetry) -> SafeString:
    if held.twin is None:
        return format_html(
            "Job {} stays dead: the live job with its unique key has just ended. Retry again.", held.id
        )
    key = project_queue().redaction.message(held.unique_key, held.id, project_queue().job)
    return format_html(
        'Job {} stays dead: live <a href="{}">job {}</a> has its unique key {}. Cancel that job, or wait until it has ended, '
        "and retry again; or retry without the key: pgqueue dead retry --without-key {}",
        held.id, address(Job, held.twin), held.twin, key, held.id,
    )  # fmt: skip
