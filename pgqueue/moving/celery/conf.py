"""``app.conf``: the settings of a Celery app. Which are honoured, which need no action, and what to do about the others.

The three tables below name every setting of Celery; the page ``docs/moving/from-celery.md`` has the same rows.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any

from pgqueue.errors import InvalidOption
from pgqueue.moving.strict import missing
from pgqueue.values.hints import did_you_mean

HONOURED: Mapping[str, str] = {
    "beat_schedule": "schedules of pgqueue, which a worker stores when it starts",
    "broker_url": "only its scheme is read: it says in which direction `priority=` counts",
    "imports": "modules that a worker imports when it starts",
    "include": "as `imports`",
    "task_acks_late": "the default of `acks_late=`",
    "task_always_eager": "`delay` and `apply_async` run the task at once, in this process, without a database",
    "task_default_priority": "the priority of calls and tasks that give none",
    "task_default_queue": "the queue of calls and tasks that no option and no route names; `default` by default",
    "task_eager_propagates": "an eager task raises its error at the call",
    "task_routes": "a mapping, a list of pairs, or functions; of a route, `queue` and `priority`",
    "task_time_limit": "the default of `time_limit=`",
    "timezone": "the time zone of `crontab(...)`, and of an `eta=` that has none; UTC by default",
}
SAME: Mapping[str, str] = {
    "beat_*": "any worker fires a schedule; there is no `beat` process and no file",
    "broker_*": "PostgreSQL holds the jobs",
    "control_*": "workers are asked through the database",
    "event_*": "events are hooks, metrics and the tables",
    "result_*": "PostgreSQL holds the results; a large value is compressed",
    "task_compression": "PostgreSQL compresses what is large",
    "task_create_missing_queue*": "a queue need not be declared",
    "task_default_*": "there are no exchanges",
    "task_ignore_result": "a result is kept with the job's history",
    "task_protocol": "a job is a row",
    "task_publish_retry*": "an enqueue inserts a row, or raises",
    "task_queue_max_priority": "priorities are from -100 to 100",
    "task_queues": "a queue need not be declared; `pgqueue worker --queues` chooses",
    "task_remote_tracebacks": "`JobFailed` shows the traceback of the worker",
    "task_repr_maxlevels": "logs do not show arguments",
    "task_send_sent_event": "the enqueue is recorded",
    "task_store_*": "every failed attempt is recorded",
    "task_track_started": "the start is recorded",
    "worker_*": "it belongs to Celery's own worker",
    **dict.fromkeys(
        ("arangodb_*", "azureblockblob_*", "cache_*", "cassandra_*", "cosmosdbsql_*", "couchbase_*", "database_*",
         "elasticsearch_*", "gcs_*", "mongodb_*", "redis_*", "s3_*"),
        "PostgreSQL holds the results",
    ),
}  # fmt: skip
_JSON = "arguments and results are stored as JSON; annotate parameters, and tasks get the original types"
INSTEAD: Mapping[str, str] = {
    "accept_content": _JSON,
    "beat_cron_starting_deadline": "give `tolerance=` to `@queue.schedule`",
    "beat_scheduler": "schedules are in the database: `pgqueue schedules`, or the dashboard, edits them",
    "enable_utc": "set `timezone`",
    "result_accept_content": _JSON,
    "result_expires": "give `PgQueue(history=timedelta(days=...))`; 7 days by default",
    "result_serializer": _JSON,
    "security_*": "give `PgQueue(codec=...)`, which encrypts what is stored",
    "task_acks_on_*": "name the errors to retry in `autoretry_for=`",
    "task_allow_error_cb_on_chord_header": "the `link_error` of the callback is told of the header's failure",
    "task_annotations": "give the options to the tasks, or to their base class",
    "task_default_rate_limit": "`pgqueue limits set queue:NAME --rate 100/minute` limits all workers together",
    "task_inherit_parent_priority": "give `priority=` to the call",
    "task_reject_on_worker_lost": "use `acks_late` and `max_retries`",
    "task_retry_on_worker_lost": "use `acks_late` and `max_retries`",
    "task_serializer": _JSON,
    "task_soft_time_limit": "there is one limit; use `task_time_limit`",
    "worker_concurrency": "`pgqueue worker --concurrency N`",
    "worker_deduplicate_successful_tasks": "use `task.task.using(unique_key=...)`",
    "worker_max_memory_per_child": "`pgqueue worker --max-memory 500MB`",
    "worker_max_tasks_per_child": "`pgqueue worker --max-jobs-per-process N`",
    "worker_pool": "threads and coroutines run the tasks; `pgqueue worker --processes N` for work on the CPU",
    "worker_soft_shutdown_timeout": "`pgqueue worker --grace N`",
}
_HARMLESS = ("json", "application/json", "celery.beat:PersistentScheduler", "sha256")
"""Values of these settings that need no action, besides those that are false."""
_TRUE_IS_HARMLESS = ("enable_utc", "task_acks_on_failure_or_timeout")


def remedy_of(name: str, value: object) -> str | None:
    """What to do in place of a setting; None: nothing has to be done."""
    values = value if isinstance(value, list | tuple | set) else [value]
    harmless = (
        bool(value) if name in _TRUE_IS_HARMLESS else all(not one or one in _HARMLESS for one in values)
    )
    return None if harmless else next((said for one, said in INSTEAD.items() if fnmatchcase(name, one)), None)


def is_setting(name: str) -> bool:
    """Whether Celery has a setting of this name."""
    return name in HONOURED or any(fnmatchcase(name, pattern) for pattern in [*INSTEAD, *SAME])


class Settings(MutableMapping[str, Any]):
    """``app.conf``: a mapping, and the same by attributes. As in Celery, an app may keep settings of its own in it."""

    _values: dict[str, Any]

    def __init__(self) -> None:
        """Without any setting."""
        vars(self)["_values"] = {}

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __setitem__(self, name: str, value: object) -> None:
        if name.isupper() and is_setting(name.removeprefix("CELERY_").lower()):
            raise InvalidOption(f"conf.{name}: write the name in lower case, as Celery does since version 4")
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        if name in self._values:
            return self._values[name]
        if is_setting(name):
            return None
        raise missing("Celery's app.conf", name, {}, [*HONOURED, *INSTEAD])

    def __setattr__(self, name: str, value: object) -> None:
        self[name] = value

    def read(self, source: object, namespace: str | None = None) -> None:
        """Take the settings of an object, a module, a mapping, or of what such a dotted path names.

        Args:
            source: ``"shop.celeryconfig"``, ``"django.conf:settings"``, or the object itself.
            namespace: only names with this prefix and ``_``, in upper case: ``CELERY`` for ``CELERY_TASK_ROUTES``.
        """
        found = named(source) if isinstance(source, str) else source
        names = found if isinstance(found, Mapping) else dir(found)
        prefix = "" if not namespace else f"{namespace}_"
        for name in names:
            setting = name.removeprefix(prefix).lower() if prefix else name
            if name.startswith(prefix) and (name.isupper() if prefix else is_setting(name)):
                self[setting] = found[name] if isinstance(found, Mapping) else getattr(found, name)

    def not_honoured(self) -> list[str]:
        """The settings that pgqueue does not honour, each with what to do instead."""
        found = [(name, value, remedy_of(name, value)) for name, value in self._values.items()]
        unknown = [
            f"{name}: Celery has no such setting{hint}"
            for name in self._values
            if not is_setting(name) and (hint := did_you_mean(name, [*HONOURED, *INSTEAD]))
        ]
        return [f"{name} = {value!r:.60}: {said}" for name, value, said in found if said] + unknown


def named(path: str) -> Any:
    """What ``module:attribute`` or a dotted path names: a module, or something in one."""
    module, colon, attribute = path.partition(":")
    if colon:
        return getattr(import_module(module), attribute)
    try:
        return import_module(path)
    except ModuleNotFoundError:
        module, _, attribute = path.rpartition(".")
        found = import_module(module) if module else None
        if found is None or not hasattr(found, attribute):
            raise
        return getattr(found, attribute)
