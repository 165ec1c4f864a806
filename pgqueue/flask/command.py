"""``flask pgqueue``: the command's verbs for the app's queue, and how worker processes find that queue."""

import importlib
import os

import click
from flask import Flask, g, has_app_context
from flask.cli import NoAppException, ScriptInfo, with_appcontext
from flask.globals import app_ctx

from pgqueue.app.pgqueue import PgQueue
from pgqueue.errors import ConfigurationError
from pgqueue.flask.session import OUTSIDE_SESSION

QUEUE = "pgqueue.flask:queue"
APP_SETTING = "FLASK_APP"


@click.command(
    "pgqueue",
    add_help_option=False,  # --help is the command's own
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Run workers, look at jobs, migrate: all verbs of pgqueue.",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@with_appcontext
def command(words: tuple[str, ...]) -> None:
    """Run the command ``pgqueue`` for the queue of this app."""
    info = click.get_current_context().find_object(ScriptInfo)
    if info is not None and info.app_import_path:
        os.environ[APP_SETTING] = info.app_import_path  # for the processes that a worker starts
    setattr(g, OUTSIDE_SESSION, True)  # no code would commit the session of ``flask pgqueue enqueue``
    # The command line is a floor above this one, so it is imported by its name.
    main = importlib.import_module("pgqueue.cli.main").command_of(QUEUE)
    main.main(list(words), prog_name="flask pgqueue")


def find_queue() -> PgQueue:
    """The queue of the current Flask app, or of the one that ``FLASK_APP`` names.

    Raises:
        ConfigurationError: there is no app, it cannot be loaded, or it has no queue.
    """
    app: Flask = app_ctx.app if has_app_context() else _load()
    try:
        queue: PgQueue = app.extensions["pgqueue"].of(app)
    except KeyError:
        raise ConfigurationError(
            f"the Flask app {app.name!r} has no queue: call queue.init_app(app) where it is made"
        ) from None
    return queue


def _load() -> Flask:
    os.environ.setdefault("FLASK_RUN_FROM_CLI", "true")  # so that an unguarded app.run() starts no server
    path = os.environ.get(APP_SETTING)
    try:
        return ScriptInfo(path).load_app()
    except NoAppException as error:
        raise ConfigurationError(f"{APP_SETTING}={path!r}: {error.message}") from error
    except Exception as error:
        raise ConfigurationError(
            f"{APP_SETTING}={path!r}: loading the app raised {type(error).__name__}: {error}"
        ) from error
