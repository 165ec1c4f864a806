"""Which queue a command uses: the app's, which ``--app`` names, or one made from a DSN alone."""

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Concatenate, ParamSpec, TypeVar

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.errors import ConfigurationError
from pgqueue.store.connections.dsn import embedded_dsn, require_only_embedded
from pgqueue.store.connections.replica import ReplicatedDatabase, with_replica

P = ParamSpec("P")
R = TypeVar("R")
OWN = str(Path(__file__).parents[1])
"""Where pgqueue's own code is: the user's mistake is not there."""
FORM = "use MODULE:ATTRIBUTE, for example shop.jobs:queue"


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """The options of every command; None or False: not given. ``arguments`` is the whole command line."""

    OPTIONS: ClassVar = ("app", "dsn", "schema", "behind_pooler", "direct_dsn", "replica_dsn", "embedded")

    arguments: tuple[str, ...] = ()
    app: str | None = None
    dsn: str | None = None
    schema: str | None = None
    behind_pooler: bool = False
    direct_dsn: str | None = None
    replica_dsn: str | None = None
    embedded: str | None = None

    def queue(self) -> PgQueue:
        """The queue to read or change: the app's if there is one, else that of the DSN.

        Raises:
            ConfigurationError: ``--app`` does not lead to a queue.
        """
        if self.app is not None:
            return self.app_queue()
        return PgQueue(
            self.dsn,
            embedded=self.embedded,
            schema=self.schema or "pgqueue",
            behind_pooler=self.behind_pooler,
            direct_dsn=self.direct_dsn,
            replica=self.replica_dsn,
        )

    def app_queue(self) -> PgQueue:
        """The app's queue, with its tasks.

        Raises:
            ConfigurationError: ``--app`` is missing or does not lead to a queue.
        """
        if self.app is None:
            raise ConfigurationError(f"no app: give --app, or set PGQUEUE_APP; {FORM}")
        queue = find(self.app)
        dsn = self.dsn
        if self.embedded:
            require_only_embedded(dsn, self.direct_dsn, self.replica_dsn)
            dsn = embedded_dsn(self.embedded)
        if dsn or self.schema or self.behind_pooler or self.direct_dsn:
            queue.database = queue.database.but(
                dsn=dsn, schema=self.schema, behind_pooler=self.behind_pooler, direct_dsn=self.direct_dsn
            )
        if self.replica_dsn:
            queue.database = with_replica(queue.database, self.replica_dsn)
        return queue


def with_queue(verb: Callable[Concatenate[PgQueue, P], R]) -> Callable[P, R]:
    """Give a command its queue, and close the queue's connections afterwards."""

    @click.pass_obj
    def call(settings: CommandOptions, /, *args: P.args, **kwargs: P.kwargs) -> R:
        queue = settings.queue()
        click.get_current_context().call_on_close(queue.close)
        try:
            return verb(queue, *args, **kwargs)
        finally:
            _tell_of_replica(queue)

    call.__name__, call.__doc__ = verb.__name__, verb.__doc__
    return call


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
    if not isinstance(found, PgQueue):
        raise ConfigurationError(f"--app {app!r}: {_not_a_queue(vars(module), attribute)}")
    return found


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
    queues = sorted(name for name, value in names.items() if isinstance(value, PgQueue))
    there = (
        f"; the module's queues: {', '.join(queues)}" if queues else "; the module holds no PgQueue at all"
    )
    if attribute not in names:
        return f"the module has no {attribute!r}{there}"
    return f"{attribute!r} is of type {type(names[attribute]).__name__}, not a PgQueue{there}"
