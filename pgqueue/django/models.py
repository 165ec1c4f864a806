"""The tables as models, to read: for the admin, and for queries of your own.

They are unmanaged, for the schema's own revisions make them, and read-only, for only the queue's methods keep its
promises. ``Job`` is the view of every job there is a record of, live or ended, in one shape. What is read of a row
that holds what Python cannot is decided by the fields: one bad row never fails a query of many.
"""

from typing import TYPE_CHECKING, Any, NoReturn

from django.db import models
from django.db.models.expressions import Col

from pgqueue.django import conf
from pgqueue.errors import PgQueueError
from pgqueue.values.payloads.storable import SHOWN, UNREADABLE

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from uuid import UUID

    from pgqueue.values.limits.status import LimitStatus
    from pgqueue.values.queues.standing import QueueStanding
    from pgqueue.values.schedules.schedule import Schedule as StoredSchedule
    from pgqueue.values.workers.worker import WorkerStatus

    ReadsTime = models.DateTimeField[Any, Any]
    ReadsTexts = models.Field[list[str] | None, list[str] | None]
else:
    ReadsTime = models.DateTimeField
    ReadsTexts = models.Field


def table(name: str) -> str:
    """A table of ours as Django's ``db_table``: it leaves alone what is quoted already, the schema included."""
    schema = conf.raw_settings().get("SCHEMA", "pgqueue")
    return f'"{schema}"."{name}"'


class TimeField(ReadsTime):
    """A time; one outside of Python's years is read as the nearest time inside.

    The database moves it, in the select list only: filters and orders use the stored value, and indices.
    """

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:  # noqa: ANN401 - Django's call
        """The column as it is selected."""
        del compiler
        schema = conf.raw_settings().get("SCHEMA", "pgqueue")
        return f'"{schema}".as_datetime({sql})', params


class TextsField(ReadsTexts):
    """An array of texts. ``ArrayField`` would have each project install ``django.contrib.postgres``: Django checks that."""

    def db_type(self, connection: Any) -> str:  # noqa: ANN401 - Django's call
        """The column's type."""
        del connection
        return "text[]"


class ValueField(models.JSONField):
    """Any JSON; what Python cannot read, because of its levels or its digits, is read as ``{"(unreadable)": "its text"}``."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:  # noqa: ANN401 - Django's call
        """The value, or its replacement."""
        try:
            return super().from_db_value(value, expression, connection)
        except (ValueError, RecursionError):
            return {UNREADABLE: str(value)[:SHOWN]}


class JsonColumn(Col):
    """A column of type ``json``, as ``jsonb``."""

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:  # noqa: ANN401 - Django's call
        """The column in a query."""
        schema = conf.raw_settings().get("SCHEMA", "pgqueue")
        sql, params = super().as_sql(compiler, connection)
        return f'"{schema}".as_jsonb({sql})', params


class JsonField(ValueField):
    """Arguments, or a result, which are ``json``. The ORM asks of them what only ``jsonb`` answers, such as ``args__contains``."""

    def get_col(self, alias: str, output_field: Any = None) -> Col:  # noqa: ANN401 - Django's call
        """The column of a table."""
        return JsonColumn(alias, self, output_field)


class ReadOnlyQuerySet(models.QuerySet[Any]):
    """A query that only reads."""

    def update(self, **_given: Any) -> NoReturn:  # noqa: ANN401 - any value
        """Refuse."""
        raise _refusal(self.model)

    def delete(self) -> NoReturn:
        """Refuse."""
        raise _refusal(self.model)

    def bulk_create(self, *_also: Any, **_given: Any) -> NoReturn:  # noqa: ANN401 - any value
        """Refuse."""
        raise _refusal(self.model)


class QueueManager(models.Manager.from_queryset(ReadOnlyQuerySet)):  # type: ignore[misc]  # made by Django, from a class
    """Reads from the database that ``PGQUEUE['DATABASE']`` names, unless another is asked for."""

    def get_queryset(self) -> ReadOnlyQuerySet:
        """All rows."""
        rows: ReadOnlyQuerySet = super().get_queryset()
        return rows if self._db else rows.using(conf.raw_settings().get("DATABASE", conf.DEFAULT_ALIAS))


class ReadOnly(models.Model):
    """A row that is written by the queue, never by the ORM."""

    objects = QueueManager()

    class Meta:
        """A base of models."""

        abstract = True

    def save(self, *_also: Any, **_given: Any) -> NoReturn:  # noqa: ANN401 - any value
        """Refuse."""
        raise _refusal(type(self))

    def delete(self, *_also: Any, **_given: Any) -> NoReturn:  # noqa: ANN401 - any value
        """Refuse."""
        raise _refusal(type(self))


class CommonJob(ReadOnly):
    """What live, dead and ended jobs have in common."""

    id: "models.BigIntegerField[int, int]" = models.BigIntegerField(primary_key=True)
    queue: "models.TextField[str, str]" = models.TextField()
    task: "models.TextField[str, str]" = models.TextField()
    args = JsonField()
    priority: "models.SmallIntegerField[int, int]" = models.SmallIntegerField()
    run_at: "models.DateTimeField[datetime, datetime]" = TimeField()
    created_at: "models.DateTimeField[datetime, datetime]" = TimeField("enqueued at")
    started_at: "models.DateTimeField[datetime | None, datetime | None]" = TimeField(null=True)
    attempts: "models.SmallIntegerField[int, int]" = models.SmallIntegerField()
    max_attempts: "models.SmallIntegerField[int, int]" = models.SmallIntegerField()
    unique_key: "models.TextField[str | None, str | None]" = models.TextField(null=True)  # noqa: DJ001 - as it is
    collisions: "models.IntegerField[int, int]" = models.IntegerField()
    worker_id: "models.UUIDField[UUID | None, UUID | None]" = models.UUIDField("worker", null=True)
    errors = ValueField(null=True)
    meta = ValueField(null=True)

    class Meta:
        """A base of models."""

        abstract = True

    def __str__(self) -> str:
        return f"{self.pk} {self.task}"


class Job(CommonJob):
    """A job, live or ended. ``state`` is one of ``JobState``."""

    state: "models.TextField[str, str]" = models.TextField()
    ended_at: "models.DateTimeField[datetime | None, datetime | None]" = TimeField(null=True)
    reason: "models.TextField[str | None, str | None]" = models.TextField(null=True)  # noqa: DJ001 - as it is
    result = JsonField(null=True)

    class Meta:
        """Where it is, and who may do what."""

        managed = False
        db_table = table("all_jobs")
        default_permissions = ("view",)
        permissions = (("retry_job", "Can retry job"), ("cancel_job", "Can cancel job"))


class DeadJob(CommonJob):
    """A job that will not run again unless a caller retries it."""

    died_at: "models.DateTimeField[datetime, datetime]" = TimeField()
    reason: "models.TextField[str, str]" = models.TextField()

    class Meta:
        """Where it is, and who may do what: to delete one is to purge it."""

        managed = False
        db_table = table("dead_jobs")
        default_permissions = ("view", "delete")


class Queue(ReadOnly):
    """What is known of a queue beside its jobs. A queue needs no row to be used."""

    name: "models.TextField[str, str]" = models.TextField(primary_key=True)
    paused_at: "models.DateTimeField[datetime | None, datetime | None]" = TimeField(null=True)
    paused_by: "models.TextField[str | None, str | None]" = models.TextField(null=True)  # noqa: DJ001 - null: not paused
    paused_why: "models.TextField[str | None, str | None]" = models.TextField(null=True)  # noqa: DJ001 - null: not said
    closed_at: "models.DateTimeField[datetime | None, datetime | None]" = TimeField(null=True)
    closed_by: "models.TextField[str | None, str | None]" = models.TextField(null=True)  # noqa: DJ001 - null: not closed
    closed_why: "models.TextField[str | None, str | None]" = models.TextField(null=True)  # noqa: DJ001 - null: not said
    priority: "models.SmallIntegerField[int | None, int | None]" = models.SmallIntegerField(null=True)
    max_attempts: "models.SmallIntegerField[int | None, int | None]" = models.SmallIntegerField(null=True)
    timeout: "models.DurationField[timedelta | None, timedelta | None]" = models.DurationField(null=True)
    keep_history: "models.DurationField[timedelta | None, timedelta | None]" = models.DurationField(null=True)
    keep_dead: "models.DurationField[timedelta | None, timedelta | None]" = models.DurationField(null=True)
    backlog: "models.IntegerField[int | None, int | None]" = models.IntegerField(null=True)
    when_full: "models.TextField[str | None, str | None]" = models.TextField(null=True)  # noqa: DJ001 - null: not said
    ageing: "models.DurationField[timedelta | None, timedelta | None]" = models.DurationField(null=True)
    ageing_to: "models.IntegerField[int | None, int | None]" = models.IntegerField(null=True)
    created_at: "models.DateTimeField[datetime, datetime]" = TimeField()
    standing: "QueueStanding"

    class Meta:
        """Where it is, and who may do what."""

        managed = False
        db_table = table("queues")
        default_permissions = ("view", "change")
        permissions = (("pause_queue", "Can pause, close and resume queue"),)

    def __str__(self) -> str:
        return str(self.name)


class Worker(ReadOnly):
    """A worker process; it holds its jobs while its lease has not passed."""

    id: "models.UUIDField[UUID, UUID]" = models.UUIDField(primary_key=True)
    started_at: "models.DateTimeField[datetime, datetime]" = TimeField()
    lease_until: "models.DateTimeField[datetime, datetime]" = TimeField()
    pid: "models.IntegerField[int, int]" = models.IntegerField("process")
    concurrency: "models.IntegerField[int, int]" = models.IntegerField()
    idle: "models.BooleanField[bool, bool]" = models.BooleanField()
    host: "models.TextField[str, str]" = models.TextField()
    version: "models.TextField[str, str]" = models.TextField()
    queues = TextsField(null=True)
    blocked_since: "models.DateTimeField[datetime | None, datetime | None]" = TimeField(null=True)
    blocked_job: "models.BigIntegerField[int | None, int | None]" = models.BigIntegerField(null=True)
    blocked_task: "models.TextField[str | None, str | None]" = models.TextField(null=True)  # noqa: DJ001 - null: not blocked
    blocked_where: "models.TextField[str | None, str | None]" = models.TextField(null=True)  # noqa: DJ001 - null: not blocked
    not_returned: "models.IntegerField[int | None, int | None]" = models.IntegerField(null=True)
    minimum: "models.IntegerField[int | None, int | None]" = models.IntegerField(null=True)
    slots: "models.IntegerField[int | None, int | None]" = models.IntegerField(null=True)
    quiet: "models.BooleanField[bool | None, bool | None]" = models.BooleanField(null=True)
    supervised: "models.BooleanField[bool | None, bool | None]" = models.BooleanField(null=True)
    answer: "models.TextField[str | None, str | None]" = models.TextField(null=True)  # noqa: DJ001 - null: it does what is asked
    ask_minimum: "models.IntegerField[int | None, int | None]" = models.IntegerField(null=True)
    ask_maximum: "models.IntegerField[int | None, int | None]" = models.IntegerField(null=True)
    ask_quiet: "models.BooleanField[bool | None, bool | None]" = models.BooleanField(null=True)
    ask_end: "models.TextField[str | None, str | None]" = models.TextField(null=True)  # noqa: DJ001 - null: not asked
    asked_at: "models.DateTimeField[datetime | None, datetime | None]" = TimeField(null=True)
    asked_by: "models.TextField[str | None, str | None]" = models.TextField(null=True)  # noqa: DJ001 - null: not asked

    status: "WorkerStatus"

    class Meta:
        """Where it is, and who may do what."""

        managed = False
        db_table = table("workers")
        default_permissions = ("view",)
        permissions = (("steer_worker", "Can make quiet, resume, stop and restart worker"),)

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"


class Schedule(ReadOnly):
    """A schedule; the queue's ``schedules`` change it."""

    name: "models.TextField[str, str]" = models.TextField(primary_key=True)
    module: "models.TextField[str | None, str | None]" = models.TextField(null=True)  # noqa: DJ001 - null: made at run time
    created_at: "models.DateTimeField[datetime, datetime]" = TimeField()
    task: "models.TextField[str, str]" = models.TextField()
    queue: "models.TextField[str, str]" = models.TextField()
    priority: "models.SmallIntegerField[int | None, int | None]" = models.SmallIntegerField(null=True)
    cron: "models.TextField[str | None, str | None]" = models.TextField(null=True)  # noqa: DJ001 - null: another rule
    every: "models.DurationField[timedelta | None, timedelta | None]" = models.DurationField(null=True)
    at: "models.DateTimeField[datetime | None, datetime | None]" = TimeField(null=True)
    timezone: "models.TextField[str, str]" = models.TextField()
    missed: "models.TextField[str, str]" = models.TextField()
    overlap: "models.TextField[str, str]" = models.TextField()
    next_at: "models.DateTimeField[datetime | None, datetime | None]" = TimeField(null=True)
    paused_at: "models.DateTimeField[datetime | None, datetime | None]" = TimeField(null=True)
    paused_by: "models.TextField[str | None, str | None]" = models.TextField(null=True)  # noqa: DJ001 - null: not paused
    failed_at: "models.DateTimeField[datetime | None, datetime | None]" = TimeField(null=True)
    error: "models.TextField[str | None, str | None]" = models.TextField(null=True)  # noqa: DJ001 - null: not set aside

    stored: "StoredSchedule"

    class Meta:
        """Where it is, and who may do what."""

        managed = False
        db_table = table("schedules")
        permissions = (
            ("pause_schedule", "Can pause and resume schedule"),
            ("fire_schedule", "Can fire schedule"),
        )

    def __str__(self) -> str:
        return str(self.name)


class Limit(ReadOnly):
    """A limit; ``queue.control.limits`` changes it. A row whose name begins with a space is the weight of a share."""

    name: "models.TextField[str, str]" = models.TextField(primary_key=True)
    most: "models.IntegerField[int | None, int | None]" = models.IntegerField(null=True)
    every: "models.BigIntegerField[int | None, int | None]" = models.BigIntegerField(null=True)
    burst: "models.BigIntegerField[int | None, int | None]" = models.BigIntegerField(null=True)
    declared: "models.TextField[str, str]" = models.TextField()
    set_at: "models.DateTimeField[datetime | None, datetime | None]" = TimeField(null=True)
    set_by: "models.TextField[str | None, str | None]" = models.TextField(null=True)  # noqa: DJ001 - null: not set
    status: "LimitStatus"

    class Meta:
        """Where it is, and who may do what."""

        managed = False
        db_table = table("limits")
        default_permissions = ("view", "add", "change")

    def __str__(self) -> str:
        return str(self.name)


class Share(Limit):
    """A row of the limits that is the weight of a share; ``queue.control.limits.weigh`` changes it. No row: the weight is 1."""

    class Meta:
        """The rows are among the limits; its permissions are its own."""

        proxy = True
        default_permissions = ("view", "add", "change")

    def __str__(self) -> str:
        """Return the argument values of the share, as its key has them."""
        return str(self.name).strip()


def _refusal(model: type[models.Model]) -> PgQueueError:
    return PgQueueError(
        f"pgqueue.{model.__name__} is there to be read; enqueue, cancel, retry and purge jobs with the queue's "
        "own methods: from pgqueue.django import queue"
    )
