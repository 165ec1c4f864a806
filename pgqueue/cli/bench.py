"""``pgqueue bench``: measures a database, in the schema ``pgqueue_bench``. :mod:`pgqueue.bench` does the work."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from pgqueue.bench import own_schema, report
from pgqueue.bench.bench_schema import COMMAND, SCHEMA, open_schema
from pgqueue.bench.figures import FORMAT, BenchReport
from pgqueue.bench.loads import LOADS, BenchLoad
from pgqueue.bench.stage import FULL, SMALL, BenchProcesses, BenchStage
from pgqueue.cli.app import queue_of
from pgqueue.cli.output import bar, json_option, print_json
from pgqueue.cli.signals import end_like_an_interrupt
from pgqueue.cli.values import names
from pgqueue.cli.verbs import CommandOptions, LazyGroup, Verb
from pgqueue.errors import ConfigurationError
from pgqueue.store.connections.database import Database
from pgqueue.values.hints import nearest

F = TypeVar("F", bound=Callable[..., Any])

ROUNDS, SMALL_ROUNDS = 3, 1
VERBS = {
    "clean": Verb("pgqueue.cli.bench:clean", "Drop the bench's schema."),
    "run": Verb("pgqueue.cli.bench:run", "Measure this database under every load, beside a bare client."),
}
AT_LEAST_ONE = click.IntRange(min=1)
INTERRUPTED = 130


@click.group(cls=LazyGroup, verbs=VERBS)
def bench() -> None:
    """Measure your own database, in a schema of the bench's own, pgqueue_bench.

    The schema is made and dropped. One that the bench did not make is refused.
    """


@click.command()
@click.pass_obj
def clean(settings: CommandOptions, /) -> None:
    """Drop the bench's schema, if an earlier bench could not."""
    with own_schema.alone(_database(settings), COMMAND) as connection:
        dropped = own_schema.drop(connection, SCHEMA, COMMAND)
    click.echo(f'schema "{SCHEMA}" is dropped' if dropped else f'there is no schema "{SCHEMA}"')


def _loads(value: str) -> list[BenchLoad]:
    """Names of loads, with commas between them."""
    return [_load(name) for name in dict.fromkeys(names(value))]


def _size(
    name: str, words: str, *, type_: click.IntRange | click.FloatRange = AT_LEAST_ONE
) -> Callable[[F], F]:
    default = getattr(FULL, name)
    shown = f"{default:,}" if isinstance(default, int) else f"{default:g}"
    option = f"--{name.replace('_', '-')}"
    return click.option(option, name, type=type_, metavar="N", help=f"{words} [default: {shown}]")


def _load(name: str) -> BenchLoad:
    if name in LOADS:
        return LOADS[name]
    known = {one.upper(): one for one in LOADS}
    meant = known.get(nearest(name.upper(), known) or "")
    hint = f" Did you mean {meant!r}?" if meant else ""
    raise click.BadParameter(f"there is no load {name!r}.{hint} The loads: {', '.join(LOADS)}.")


def _earlier(path: str) -> BenchReport:
    """A file with what ``pgqueue bench run --json`` printed."""
    try:
        found = msgspec.json.decode(Path(path).read_bytes(), type=BenchReport)
    except OSError as error:
        raise click.BadParameter(f"{path!r}: {error.strerror}.") from None
    except msgspec.MsgspecError as error:
        raise click.BadParameter(f"{path!r} is no result of `pgqueue bench run --json`: {error}.") from None
    if found.format != FORMAT:
        raise click.BadParameter(f"{path!r} is of format {found.format}; this release reads {FORMAT}.")
    return found


@click.command()
@click.option(
    "--loads",
    "chosen",
    type=_loads,
    metavar="NAMES",
    default=",".join(LOADS),
    show_default=True,
    help="The loads to run, with commas between.",
)
@click.option("--rounds", type=AT_LEAST_ONE, help=f"How often to run each load. [default: {ROUNDS}]")
@click.option("--small", is_flag=True, help="A first look: small sizes, one round, within a minute.")
@json_option
@click.option(
    "--compare", type=_earlier, metavar="FILE", help="Show how ratios differ from those in this file."
)
@click.option("--no-floor", is_flag=True, help="Measure pgqueue alone, without the bare client.")
@_size("concurrency", "Jobs at a time, in each worker.")
@_size("jobs", "Jobs to drain.")
@_size("churn", "D: jobs that run under a held snapshot.")
@_size("behind", "E: ready jobs behind those that are measured.")
@_size("future", "E: urgent jobs that are not due.")
@_size("other", "E: jobs in another queue.")
@_size("names", "Q: queues with one job each.")
@_size("crowd", "F: jobs that 16 threads enqueue.")
@_size("idle_seconds", "M: for how long to watch an idle worker.", type_=click.FloatRange(min=0.1))
@click.pass_obj
def run(
    settings: CommandOptions,
    /,
    *,
    chosen: Sequence[BenchLoad],
    rounds: int | None,
    small: bool,
    as_json: bool,
    compare: BenchReport | None,
    no_floor: bool,
    **given: Any,  # noqa: ANN401 - sizes
) -> None:
    """Measure this database under every load, beside a bare client that does the least possible.

    Figures are of this machine at this moment; ratios carry over. Keep what --json prints, and show it to
    --compare after a change.
    """
    sizes = replace(
        SMALL if small else FULL, **{name: size for name, size in given.items() if size is not None}
    )
    rounds = rounds or (SMALL_ROUNDS if small else ROUNDS)
    with (
        open_stage(settings, concurrency=sizes.concurrency, floor=not no_floor) as stage,
        bar(rounds * len(chosen)) as progress,
    ):
        found = report.measured(
            stage, chosen, sizes, rounds, tell=progress.tell, step=progress.step, warn=warn_of_others
        )
    if as_json:
        print_json(report.as_json(found, compare))
    else:
        report.show(found, compare)


def _database(settings: CommandOptions) -> Database:
    """Which database the command line means.

    Raises:
        ConfigurationError: none, or a schema or a pooler, neither of which can be had.
    """
    if settings.schema:
        raise ConfigurationError(
            f"--schema: the bench works in the schema {SCHEMA} and no other; leave it out"
        )
    found = Database(settings.dsn) if settings.dsn else queue_of(settings).database
    if settings.behind_pooler or found.behind_pooler:
        raise ConfigurationError(
            "the bench measures a server, not a pooler: give the server's own DSN in --dsn"
        )
    return Database(found.dsn)


@contextmanager
def open_stage(
    settings: CommandOptions, *, concurrency: int = 20, floor: bool = True
) -> Iterator[BenchStage]:
    """Have the stage for the length of the block; nothing is left behind, however it ends.

    An interrupt (Ctrl-C, SIGTERM, SIGHUP) ends the command with exit code 130.
    """
    dsn = _database(settings).dsn
    try:
        with (
            end_like_an_interrupt(signal.SIGTERM, signal.SIGHUP),
            open_schema(dsn) as opened,
            BenchProcesses(opened.dsn) as crew,
        ):
            yield BenchStage(opened, crew, concurrency=concurrency, floor=floor)
    except KeyboardInterrupt:
        click.echo("pgqueue: interrupted; the bench's schema is dropped", err=True)
        click.get_current_context().exit(INTERRUPTED)


def warn_of_others(others: list[str]) -> str | None:
    """Say, on stderr, that others are at work and so figures will be off; returns what was said."""
    if not others:
        return None
    words = f"others are at work on this server ({', '.join(others)}); figures will be off"
    click.echo(f"pgqueue: warning: {words}", err=True)
    return words
