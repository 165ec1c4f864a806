"""``pgqueue bench run``: every load, round by round, each beside what it is compared with."""

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from pgqueue.cli.app import Settings
from pgqueue.cli.bench import figures
from pgqueue.cli.bench.bars import bar
from pgqueue.cli.bench.figures import FORMAT, Figure, Pair, Report, Result
from pgqueue.cli.bench.loads import LOADS, Load
from pgqueue.cli.bench.report import earlier, show
from pgqueue.cli.bench.sizes import FULL, SMALL, Sizes
from pgqueue.cli.bench.stage import Stage, staged, warn_of_others
from pgqueue.cli.output import json_option
from pgqueue.cli.values import names
from pgqueue.values.nearest import nearest
from pgqueue.values.version import __version__

F = TypeVar("F", bound=Callable[..., Any])

ROUNDS, SMALL_ROUNDS = 3, 1
AT_LEAST_ONE = click.IntRange(min=1)


def loads(value: str) -> list[Load]:
    """Names of loads, with commas between them."""
    return [_load(name) for name in dict.fromkeys(names(value))]


def _size(
    name: str, words: str, *, type_: click.IntRange | click.FloatRange = AT_LEAST_ONE
) -> Callable[[F], F]:
    """An option that sets a size."""
    default = getattr(FULL, name)
    shown = f"{default:,}" if isinstance(default, int) else f"{default:g}"
    option = f"--{name.replace('_', '-')}"
    return click.option(option, name, type=type_, metavar="N", help=f"{words} [default: {shown}]")


@click.command()
@click.option(
    "--loads",
    "chosen",
    type=loads,
    metavar="NAMES",
    default=",".join(LOADS),
    show_default=True,
    help="The loads to run, with commas between.",
)
@click.option("--rounds", type=AT_LEAST_ONE, help=f"How often to run each load. [default: {ROUNDS}]")
@click.option("--small", is_flag=True, help="A first look: small sizes, one round, within a minute.")
@json_option
@click.option(
    "--compare", type=earlier, metavar="FILE", help="Show how ratios differ from those in this file."
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
    settings: Settings,
    /,
    *,
    chosen: Sequence[Load],
    rounds: int | None,
    small: bool,
    as_json: bool,
    compare: Report | None,
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
    with staged(settings, concurrency=sizes.concurrency, floor=not no_floor) as stage:
        report = _measured(stage, chosen, sizes, rounds)
    show(report, compare, as_json=as_json)


def _measured(stage: Stage, chosen: Sequence[Load], sizes: Sizes, rounds: int) -> Report:
    date = datetime.now(UTC).isoformat(timespec="seconds")
    warnings: list[str] = []
    found: list[dict[str, Pair]] = []
    with bar(rounds * len(chosen)) as progress:
        for number in range(rounds):
            if not warnings and (warning := warn_of_others(stage.place.others())):
                warnings.append(warning)
            this_round: dict[str, Pair] = {}
            for load in chosen:
                progress.tell(f"round {number + 1} of {rounds}: {load.name}")
                this_round |= load.measure(stage, sizes, this_round)
                progress.step()
            found.append(this_round)
    described = [figure for load in chosen for figure in load.described(sizes)]
    return Report(
        FORMAT,
        date,
        __version__,
        platform.python_version(),
        os.cpu_count() or 1,
        stage.place.settings(),
        asdict(sizes),
        rounds,
        warnings,
        list(_results(described, found)),
    )


def _results(described: Sequence[Figure], found: Sequence[dict[str, Pair]]) -> Iterator[Result]:
    """A result for each figure that was found; one that this system cannot measure is left out."""
    for figure in described:
        pairs = [one[figure.name] for one in found if figure.name in one]
        if pairs:
            yield figures.result(figure, pairs)


def _load(name: str) -> Load:
    if name in LOADS:
        return LOADS[name]
    known = {one.upper(): one for one in LOADS}
    meant = known.get(nearest(name.upper(), known) or "")
    hint = f" Did you mean {meant!r}?" if meant else ""
    raise click.BadParameter(f"there is no load {name!r}.{hint} The loads: {', '.join(LOADS)}.")
