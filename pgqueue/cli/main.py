"""The command itself: the options of every command, the table of commands, and how errors are shown.

Each command is in the file that its row names, which decides what the command does. The file is imported when the command is
called, so that a worker does not import what only tables or migrations need.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from pgqueue.cli.signals import no_interrupt_lost
from pgqueue.cli.verbs import CommandOptions, LazyGroup, Verb
from pgqueue.errors import PgQueueError
from pgqueue.values.hints import DISTRIBUTION

VERBS = {
    "adopt": Verb(
        "pgqueue.cli.adopt:adopt", "Move waiting jobs from Procrastinate or PgQueuer into pgqueue."
    ),
    "alerts": Verb("pgqueue.cli.alerts:alerts", "List the alerts that code declares; silence one."),
    "audit": Verb("pgqueue.cli.audit:audit", "List what operators did; continue an operation."),
    "bench": Verb("pgqueue.cli.bench:bench", "Measure the queue on your database, beside a bare client."),
    "chaos": Verb("pgqueue.cli.chaos:chaos", "Let faults happen while jobs run, and check every promise."),
    "compare": Verb(
        "pgqueue.cli.compare:compare", "Say which tasks became slower, or fail more, since a deploy."
    ),
    "dashboard": Verb("pgqueue.cli.dashboard:dashboard", "Show the queue in a browser, and steer it there."),
    "dead": Verb("pgqueue.cli.dead:dead", "List, retry or delete dead jobs."),
    "demo": Verb("pgqueue.cli.demo:demo", "Run jobs, kill a worker, and check that no job is lost."),
    "enqueue": Verb("pgqueue.cli.enqueue:enqueue", "Enqueue a job of a registered task."),
    "grants": Verb("pgqueue.cli.grants:grants", "Print the SQL that gives a role its rights, or run it."),
    "jobs": Verb("pgqueue.cli.jobs:jobs", "List, show, start, cancel or move jobs."),
    "keys": Verb("pgqueue.cli.keys:keys", "Make keys for encryption; list the names of those that are set."),
    "limits": Verb("pgqueue.cli.limits:limits", "List limits and rates; show who holds their places; set."),
    "metrics": Verb("pgqueue.cli.metrics:metrics", "Print or serve metrics of the queue for Prometheus."),
    "migrate": Verb("pgqueue.cli.migrate:migrate", "Install, upgrade or check pgqueue's tables."),
    "pipeline": Verb(
        "pgqueue.cli.pipeline.command:pipeline",
        "Export ended jobs to a lake of Delta tables, and report on them.",
    ),
    "queues": Verb("pgqueue.cli.queues:queues", "List, pause, close or set queues."),
    "retention": Verb("pgqueue.cli.retention:retention", "Show for how long records are kept; change it."),
    "runs": Verb("pgqueue.cli.runs:runs", "List DataFrames written as jobs, and how far they are; cancel."),
    "schedules": Verb("pgqueue.cli.schedules:schedules", "List, add, pause or fire schedules."),
    "shards": Verb("pgqueue.cli.shards:shards", "List the shards of a queue; declare them, add one."),
    "signal": Verb("pgqueue.cli.signal:signal", "Send a signal to a job that waits for it, or to a key."),
    "status": Verb("pgqueue.cli.status:status", "Say whether all is right, and name each problem."),
    "top": Verb("pgqueue.cli.top:top", "Show queues, workers, tasks and running jobs, live."),
    "why": Verb("pgqueue.cli.why:why", "Say why a job does not run."),
    "worker": Verb("pgqueue.cli.worker:worker", "Run jobs until it is stopped."),
    "workers": Verb(
        "pgqueue.cli.workers:workers",
        "List workers; change their slots; quiet, stop, restart them.",
    ),
    "workflows": Verb(
        "pgqueue.cli.workflows:workflows", "List, show, cancel or retry chains, groups and workflows."
    ),
}
F = TypeVar("F", bound=Callable[..., Any])
ARGUMENTS = "pgqueue.arguments"
HELP = "A durable job queue on the PostgreSQL you already run."
NO_NOTES: Mapping[str, str] = {}
GRANTS = "; `pgqueue grants` prints the rights of a worker, producer, reader or operator, and of the owner, who migrates"


class ErrorLine(click.ClickException):
    """An error of pgqueue in one line, in place of a traceback."""

    exit_code = 2

    def show(self, file: Any = None) -> None:  # noqa: ANN401, ARG002 - click's signature
        """Print it on stderr."""
        from pgqueue.cli.output import say  # noqa: PLC0415 - for errors only

        say(f"pgqueue: error: {' '.join(self.message.split())}", err=True)


class Root(LazyGroup):
    """The group of all commands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the command line, then parse it."""
        ctx.meta[ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's signature
        """Run a command; its errors become one line."""
        try:
            with no_interrupt_lost():
                return super().invoke(ctx)
        except PgQueueError as error:
            raise ErrorLine(str(error)) from error
        except Exception as error:
            import psycopg  # noqa: PLC0415 - for errors only

            if not isinstance(error, psycopg.Error):
                raise
            hint = GRANTS if isinstance(error, psycopg.errors.InsufficientPrivilege) else ""
            raise ErrorLine(f"the database refused: {error}{hint}") from error


def _root(function: Callable[..., None]) -> Root:
    names = {"help_option_names": ["-h", "--help"]}
    root = click.group("pgqueue", cls=Root, verbs=VERBS, context_settings=names)(function)
    return click.version_option(package_name=DISTRIBUTION, message="pgqueue %(version)s")(root)


_DATABASE: Mapping[str, Mapping[str, Any]] = {
    "--embedded": {
        "metavar": "FOLDER",
        "help": "In place of a DSN: the folder of a PostgreSQL of its own, which is started if it does not run.",
    },
    "--replica-dsn": {
        "help": "A streaming replica that answers what only looks; without it the app's own, or PGQUEUE_REPLICA_DSN."
    },
    "--direct-dsn": {"help": "The DSN of the server behind the pooler; workers use it to listen."},
    "--behind-pooler": {
        "is_flag": True,
        "help": "The DSN is that of a transaction pooler such as PgBouncer.",
    },
    "--schema": {"help": "The schema of the tables; without it the app's own, or pgqueue."},
    "--dsn": {"help": "The database; without it the app's own, PGQUEUE_DSN or DATABASE_URL."},
}


_reveal = click.option(
    "--reveal", is_flag=True, help="Show the values of fields such as password and token, too."
)


def _about_the_database(*, hidden: bool = False) -> Callable[[F], F]:
    def add(function: F) -> F:
        for name, given in _DATABASE.items():
            function = click.option(name, hidden=hidden, **given)(function)
        return function

    return add


@_root
@click.option(
    "--app",
    metavar="MODULE:ATTRIBUTE",
    envvar="PGQUEUE_APP",
    show_envvar=True,
    help="Where your PgQueue is, such as shop.jobs:queue.",
)
@_about_the_database()
@_reveal
@click.pass_context
def main(ctx: click.Context, /, **given: Any) -> None:  # noqa: ANN401 - the options above
    """A durable job queue on the PostgreSQL you already run.

    The commands worker and enqueue need your app (--app). The others need an app or a database (--dsn). These
    options may stand before the command or after it.

    A length of time is a number of seconds, or a number with s, m, h, d or w: 30, 5m, 2h.
    """
    ctx.obj = CommandOptions(arguments=tuple(ctx.meta[ARGUMENTS]), **given)


def command_of(app: str, *, notes: Mapping[str, str] = NO_NOTES) -> Root:
    """The command of one app, for a framework's own command such as ``manage.py pgqueue``.

    The framework's settings name the app and the database. So this command has no ``--app``, and its help does not show
    the options about the database; they are accepted.

    Args:
        app: where its queue is, as ``module:attribute``; worker processes that it starts get this option, too.
        notes: text for the end of a command's help, by the command's name.
    """

    @_root
    @_about_the_database(hidden=True)
    @_reveal
    @click.pass_context
    def command(ctx: click.Context, /, **given: Any) -> None:  # noqa: ANN401 - the options above
        ctx.obj = CommandOptions(arguments=("--app", app, *ctx.meta[ARGUMENTS]), app=app, **given)

    command.help = HELP
    command.notes = notes
    return command
