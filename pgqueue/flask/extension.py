"""The extension: a queue with the database, the app contexts and the transactions of a Flask app.

Tasks belong to the extension, which a module makes once, as Flask's extensions are made. Databases belong to the apps
that it is initialised for. The app context says which app is used. Outside of an app context the queue uses the app that
was initialised last, if all apps have the same database; otherwise it raises an error.
"""

import copy
import inspect
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from flask import Flask, has_app_context
from flask.globals import app_ctx

from pgqueue.app.context import Context
from pgqueue.app.database_for_tests import database_for_tests
from pgqueue.app.middleware import Middleware
from pgqueue.app.pgqueue import PgQueue
from pgqueue.errors import ConfigurationError
from pgqueue.flask.command import command
from pgqueue.flask.config import PREFIX, read
from pgqueue.flask.session import FlaskDatabase, report_lost_jobs
from pgqueue.store.connections.database import Database
from pgqueue.values.payloads.codec import Codec
from pgqueue.values.queues.queue_options import QueueOptions
from pgqueue.values.secret_names import check_secrets

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

NAME = "pgqueue"


class DatabaseLocation(NamedTuple):
    """Where an app's database is: apps of one place share its connections."""

    dsn: str | None = None
    schema: str = "pgqueue"
    direct_dsn: str | None = None
    behind_pooler: bool = False
    pool_size: int = 10
    session: "bool | Callable[[], Session] | None" = None
    other_database: str | None = None


class PgQueueFlask(PgQueue):
    """A job queue in the database of a Flask app."""

    _queues_setting = "app.config['PGQUEUE_QUEUES']"

    def __init__(
        self,
        app: Flask | None = None,
        *,
        dsn: str | None = None,
        schema: str | None = None,
        queues: Iterable[str] | None = None,
        history: timedelta | None = None,
        dead: timedelta | None = None,
        history_args: int | None = None,
        max_payload: int | None = None,
        behind_pooler: bool | None = None,
        direct_dsn: str | None = None,
        pool_size: int | None = None,
        session: "bool | Callable[[], Session] | None" = None,
        middleware: Iterable[Middleware] = (),
        codec: Codec | None = None,
        redact: Iterable[str] | None = None,
    ) -> None:
        """Describe the queue. These options take precedence over the configuration of its apps.

        Args:
            app: the app, if it exists already; else call :meth:`init_app` later.
            dsn: where the database is; by default PGQUEUE_DSN or SQLALCHEMY_DATABASE_URI of the app's
                configuration, then PGQUEUE_DSN or DATABASE_URL of the environment.
            schema: the database schema in which the tables are.
            queues: all queues. If given, any other name raises an error; None allows any.
            history: for how long ended jobs are kept: a timedelta of whole days; zero keeps none. None: as is stored.
            dead: for how long dead jobs are kept: a timedelta of whole days. None: as is stored.
            history_args: the longest arguments, in bytes as stored, that the history keeps of a succeeded job. None: as is stored.
            max_payload: the largest size of a job's arguments as JSON, in bytes.
            behind_pooler: ``dsn`` leads to a transaction pooler such as PgBouncer.
            direct_dsn: the DSN of the server behind that pooler; workers use it to listen.
            pool_size: at most how many connections of each kind (blocking, awaitable) to keep.
            session: which session's transaction jobs join. None: Flask-SQLAlchemy's ``db.session``, if it uses this
                same database; True: ``db.session`` in any case; False: none; a function: what it returns.
            middleware: runs around each attempt of each task, within its app context; the outermost first.
            codec: encodes what is stored of jobs, and decodes it; None: all is stored in clear.
            redact: regular expressions of the names of fields whose values people do not see; by default ``pgqueue.SECRETS``.

        Raises:
            ConfigurationError: an option, or a setting of the app, is wrong.
        """
        self._given = {
            "dsn": dsn,
            "schema": schema,
            "queues": None if queues is None else frozenset(queues),
            "history": history,
            "dead": dead,
            "history_args": history_args,
            "max_payload": max_payload,
            "behind_pooler": behind_pooler,
            "direct_dsn": direct_dsn,
            "pool_size": pool_size,
            "session": session,
            "redact": None if redact is None else check_secrets(redact),
        }
        self._places: WeakKeyDictionary[Flask, DatabaseLocation] = WeakKeyDictionary()
        self._databases: dict[DatabaseLocation, Database] = {}
        self._latest: Flask | None = None
        self._only: Flask | None = None
        self._unbound: Database | None = None
        self._around_hook = self._in_app
        super().__init__(middleware=(_AppContext(self._app), *middleware), codec=codec, **_core(self._given))
        self._unbound = None
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Set the queue up for an app: read its configuration, and give it the command ``flask pgqueue``.

        Args:
            app: the app, already configured: its configuration is read now.

        Raises:
            ConfigurationError: a setting is wrong, the app has another queue already, or its ``queues``, ``history``,
                ``dead``, ``history_args``, ``max_payload`` or ``redact`` differ from those of an earlier app.
        """
        if app.extensions.get(NAME, self) is not self:
            raise ConfigurationError(
                f"the Flask app {app.name!r} has a queue already: import and use that one"
            )
        options = read(app.config, self._given)
        rules = QueueOptions.checked(
            **{name: options[name] for name in QueueOptions._fields if name in options}
        )
        place = DatabaseLocation(
            **{name: options[name] for name in DatabaseLocation._fields if name in options}
        )
        database = self._databases.get(place) or FlaskDatabase(**place._asdict())
        self._share(rules)
        self._places[app], self._latest = place, app
        if place not in self._databases:
            self._databases[place] = database
            with app.app_context():
                self.database = database_for_tests(self, self.database)
        if app.extensions.get(NAME) is None:
            report_lost_jobs(app)
        app.extensions[NAME] = self
        app.cli.add_command(command)

    def of(self, app: Flask) -> "PgQueueFlask":
        """This queue with one app's database, in any app context: for a worker of one of several apps.

        Args:
            app: an app that the queue was initialised for.

        Returns:
            A queue with the tasks registered so far; they run in contexts of that app.

        Raises:
            ConfigurationError: the queue was not initialised for it.
        """
        self._require(app)
        bound = copy.copy(self)
        bound._bind(app)  # noqa: SLF001 - of this same class
        return bound

    @property
    def database(self) -> Database:
        """The database of the current app.

        Raises:
            ConfigurationError: there is no app, or several apps with several databases.
        """
        if self._unbound is not None:
            return self._unbound
        return self._databases[self._places[self._app()]]

    @database.setter
    def database(self, database: Database) -> None:
        if self._latest is None:  # the constructor of PgQueue sets it
            self._unbound = database
        else:
            self._databases[self._places[self._app()]] = database

    def _in_app(self) -> AbstractContextManager[object]:
        try:
            return self._app().app_context()
        except ConfigurationError:
            # It is not known which app's context to use.
            return nullcontext()

    def close(self) -> None:
        """Close the connections kept for enqueuing, those of every app."""
        for database in self._databases.values():
            database.close()

    async def aclose(self) -> None:
        """Close the connections kept for enqueuing, those of every app."""
        for database in self._databases.values():
            await database.aclose()

    def _app(self) -> Flask:
        if self._only is not None:
            return self._only
        if has_app_context():
            return self._require(app_ctx.app)
        if self._latest is None:
            raise ConfigurationError("this queue has no app: call queue.init_app(app) where the app is made")
        if len(self._databases) > 1:
            raise ConfigurationError(
                "this queue was initialised for apps with several databases: use it in an app context, "
                "`with app.app_context():`, or say which with queue.of(app)"
            )
        return self._latest

    def _require(self, app: Flask) -> Flask:
        if app not in self._places:
            raise ConfigurationError(
                f"this queue was not initialised for the Flask app {app.name!r}: call queue.init_app(app)"
            )
        return app

    def _share(self, wanted: QueueOptions) -> None:
        for name, value in wanted._asdict().items():
            if self._latest is not None and value != getattr(self, name):
                raise ConfigurationError(
                    f"{PREFIX}{name.upper()} = {value!r}, but this queue has {getattr(self, name)!r} in "
                    "another app: the queue is one, so give all of its apps the same"
                )
            setattr(self, name, value)
        for task in self._tasks.values():
            self.require_queue(task.options.queue)

    def _bind(self, app: Flask) -> None:
        self._only = app
        self._around_hook = self._in_app
        self._tasks = {name: copy.copy(task) for name, task in self._tasks.items()}
        own = _AppContext(self._app)
        for task in self._tasks.values():
            task.compose([own if isinstance(one, _AppContext) else one for one in task.middleware])
            task._queue = self  # noqa: SLF001 - made by this very class


class _AppContext(Middleware):
    """An app context for each attempt, which is torn down when the attempt ends."""

    def __init__(self, app: Callable[[], Flask]) -> None:
        self._app = app

    def around(self, ctx: Context, call: Callable[[], Any]) -> Any:  # noqa: ANN401, ARG002 - the task's own value
        app = self._app()
        with app.app_context():
            value = call()
        return _awaited_in(app, value) if inspect.isawaitable(value) else value

    async def aaround(self, ctx: Context, call: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401, ARG002 - the task's own value
        with self._app().app_context():
            return await call()


def _core(options: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in options.items()
        if name not in {"session", "other_database"} and value is not None
    }


async def _awaited_in(app: Flask, value: Awaitable[Any]) -> Any:  # noqa: ANN401 - the function's own
    """Await the awaitable that a plain function returned, in an app context like the function's own."""
    with app.app_context():
        return await value
