"""Which queue a command uses: the app's, which ``--app`` names, or one made from a DSN alone."""

import functools
import importlib
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import click

from pgqueue.app.late_tasks import queue_behind, register_late_tasks
from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.verbs import CommandOptions
from pgqueue.errors import ConfigurationError
from pgqueue.store.connections.dsn import EMBEDDED_ALONE, embedded_dsn, require_alone
from pgqueue.store.connections.replica import ReplicatedDatabase, with_replica
from pgqueue.values.secret_names import SECRETS

P = ParamSpec("P")
R = TypeVar("R")
OWN = str(Path(__file__).parents[1])
"""Where pgqueue's own code is: the user's mistake is not there."""
FORM = "use MODULE:ATTRIBUTE, for example shop.jobs:queue"


def queue_of(options: CommandOptions) -> PgQueue:
    """The queue to read or change: the app's if there is one, else that of the DSN.

    Raises:
        ConfigurationError: ``--app`` does not lead to a queue.
    """
    if options.app is not None:
        return app_queue_of(options)
    return PgQueue(
        options.dsn,
        embedded=options.embedded,
        schema=options.schema or "pgqueue",
        behind_pooler=options.behind_pooler,
        direct_dsn=options.direct_dsn,
        replica=options.replica_dsn,
        redact=() if options.reveal else SECRETS,
    )


def app_queue_of(options: CommandOptions) -> PgQueue:
    """The app's queue, with its tasks.

    Raises:
        ConfigurationError: ``--app`` is missing or does not lead to a queue.
    """
    if options.app is None:
        raise ConfigurationError(f"no app: give --app, or set PGQUEUE_APP; {FORM}")
    queue = find(options.app)
    dsn = options.dsn
    if options.embedded:
        require_alone(EMBEDDED_ALONE, dsn, options.direct_dsn, options.replica_dsn)
        dsn = embedded_dsn(options.embedded)
    if dsn or options.schema or options.behind_pooler or options.direct_dsn:
        queue.database = queue.database.but(
            dsn=dsn,
            schema=options.schema,
            behind_pooler=options.behind_pooler,
            direct_dsn=options.direct_dsn,
        )
    if options.replica_dsn:
        queue.database = with_replica(queue.database, options.replica_dsn)
    if options.reveal:
        queue.redact = ()
    return queue


def with_queue(verb: Callable[Concatenate[PgQueue, P], R]) -> Callable[P, R]:
    """Give a command its queue, and close the queue's connections afterwards."""

    @click.pass_obj
    def call(options: CommandOptions, /, *args: P.args, **kwargs: P.kwargs) -> R:
        queue = queue_of(options)
        click.get_current_context().call_on_close(queue.close)
        try:
            return verb(queue, *args, **kwargs)
        finally:
            _tell_of_replica(queue)

    return functools.update_wrapper(call, verb)


def _tell_of_replica(queue: PgQueue) -> None:
    if isinstance(queue.database, ReplicatedDatabase) and queue.database.asked:
        click.echo(f"note: {queue.database.replica_status()}", err=True)


def find(app: str) -> PgQueue:
    """The queue that ``module:attribute`` names; the current directory is searched, too.

    Raises:
        ConfigurationError: there is no such module or attribute, it cannot be imported, or it is no queue.
    """
    module_name, colon, attribute = app.partition(":")
    if colon and attribute and os.sep in module_name:
        raise ConfigurationError(f"--app {app!r}: {_no_path(module_name, attribute)}")
    if not (module_name and colon and attribute) or module_name.startswith("."):
        raise ConfigurationError(f"--app {app!r}: {FORM}")
    if os.getcwd() not in sys.path:  # noqa: PTH109 - sys.path holds strings
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - sys.path holds strings
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"--app {app!r}: {_reason(module_name, attribute, error)}") from error
    found = getattr(module, attribute, None)
    queue = queue_behind(found)
    if not isinstance(queue, PgQueue):
        raise ConfigurationError(f"--app {app!r}: {_not_a_queue(vars(module), attribute)}")
    register_late_tasks(queue)
    return queue


def _no_path(path: str, attribute: str) -> str:
    parts = Path(os.path.relpath(path.removesuffix(".py"))).parts
    name = ".".join(parts).removesuffix(".__init__")
    meant = FORM if parts[0] == ".." else f"use {name}:{attribute}"
    return f"this is a path, and a module is named with dots: {meant}"


def _reason(module: str, attribute: str, error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
        if module.endswith(".py"):
            return _no_path(module, attribute)
        return (
            f"there is no module {error.name!r} in the current folder, {os.getcwd()}, or on the Python path: "  # noqa: PTH109 - as sys.path
            "start in the folder that contains it, or set PYTHONPATH to that folder"
        )
    if isinstance(error, SyntaxError) and error.filename and not error.filename.startswith("<"):
        # The last frame of its traceback is in Python's importlib.
        return (
            f"importing it raised {type(error).__name__}: {error.msg} ({error.filename}, line {error.lineno})"
        )
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith((OWN, "<"))]
    where = (theirs or frames)[-1]
    return f"importing it raised {type(error).__name__}: {error} ({where.filename}, line {where.lineno})"


def _not_a_queue(names: dict[str, object], attribute: str) -> str:
    queues = sorted(name for name, value in names.items() if isinstance(queue_behind(value), PgQueue))
    there = (
        f"; the module's queues: {', '.join(queues)}" if queues else "; the module holds no PgQueue at all"
    )
    if attribute not in names:
        return f"the module has no {attribute!r}{there}"
    return f"{attribute!r} is of type {type(names[attribute]).__name__}, not a PgQueue{there}"
