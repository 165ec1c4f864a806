"""The command itself: its global options, its table of verbs, and how refusals are shown.

Each verb lives in a file of its own and is imported when it is called, so that a worker does not carry what
only tables or migrations need. What a verb does is that file's business.
"""

import sys
from typing import Any

import click
import psycopg

from pgqueue.cli.app import Settings
from pgqueue.cli.verbs import LazyGroup, Verb
from pgqueue.errors import PgQueueError
from pgqueue.values.version import __version__

VERBS = {
    "adopt": Verb("pgqueue.cli.adopt:adopt", "Move jobs that wait in another queue's tables into ours."),
    "bench": Verb(
        "pgqueue.cli.bench.command:bench", "Measure your database under load, beside a bare client."
    ),
    "dead": Verb("pgqueue.cli.dead:dead", "List, retry or purge dead jobs."),
    "demo": Verb("pgqueue.cli.demo.command:demo", "See jobs survive a killed worker, and the proof of it."),
    "enqueue": Verb("pgqueue.cli.enqueue:enqueue", "Enqueue a job of a registered task."),
    "jobs": Verb("pgqueue.cli.jobs:jobs", "List, show, cancel or retry jobs."),
    "migrate": Verb("pgqueue.cli.migrate:migrate", "Install, upgrade or check the schema."),
    "pipeline": Verb(
        "pgqueue.cli.pipeline.command:pipeline", "Take ended jobs to a Parquet lake, and report on them."
    ),
    "queues": Verb("pgqueue.cli.queues:queues", "List, pause or resume queues."),
    "worker": Verb("pgqueue.cli.worker:worker", "Run jobs until told to stop."),
}
ARGUMENTS = "pgqueue.arguments"


class Refusal(click.ClickException):
    """An error of ours in one line, in place of a traceback."""

    exit_code = 2

    def show(self, file: Any = None) -> None:  # noqa: ANN401 - click's signature
        """Print it."""
        click.echo(f"pgqueue: error: {' '.join(self.message.split())}", file=file or sys.stderr)


class Root(LazyGroup):
    """The group of all verbs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the command line, then parse it."""
        ctx.meta[ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's signature
        """Run a verb; its errors become one line."""
        try:
            return super().invoke(ctx)
        except PgQueueError as error:
            raise Refusal(str(error)) from error
        except psycopg.Error as error:
            raise Refusal(f"the database refused: {error}") from error
        except click.NoSuchOption as error:
            if not any(error.option_name in option.opts for option in self.params):
                raise
            words = f"{error.message} It goes before the verb: pgqueue {error.option_name} ... {ctx.invoked_subcommand}"
            raise click.NoSuchOption(error.option_name, words, ctx=error.ctx) from None


@click.group("pgqueue", cls=Root, verbs=VERBS, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--app", metavar="MODULE:ATTRIBUTE", envvar="PGQUEUE_APP", show_envvar=True, help="Your PgQueue."
)
@click.option("--dsn", help="The database, in place of the app's own, PGQUEUE_DSN or DATABASE_URL.")
@click.option("--schema", help="The schema in it, in place of the app's own or pgqueue.")
@click.option(
    "--behind-pooler", is_flag=True, help="The DSN leads to a transaction pooler such as PgBouncer."
)
@click.option("--direct-dsn", help="The way past that pooler, so that workers can listen.")
@click.version_option(__version__, message="pgqueue %(version)s")
@click.pass_context
def main(ctx: click.Context, /, **given: Any) -> None:  # noqa: ANN401 - the options above
    """A durable job queue on the PostgreSQL you already run.

    Verbs that only look or steer need a DSN; worker and enqueue need your --app.
    """
    ctx.obj = Settings(arguments=tuple(ctx.meta[ARGUMENTS]), **given)
