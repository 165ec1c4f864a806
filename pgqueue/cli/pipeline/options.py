"""The options that the verbs of the lake share, and the form of sizes in their output."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from pgqueue.cli.values import LENGTH
from pgqueue.cli.verbs import CommandOptions
from pgqueue.errors import ConfigurationError, InvalidOption
from pgqueue.spark.config import Config, load
from pgqueue.store.pipeline import lake as plans

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pgqueue.app.pgqueue import PgQueue
    from pgqueue.spark.lake.lake import Lake

Spark: TypeAlias = "Callable[[], SparkSession]"
"""Makes or finds the Spark session."""
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

STEP, UNITS = 1_000, ("B", "kB", "MB", "GB", "TB")


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """What ``--lake`` and ``--config`` say.

    Attributes:
        place: where the lake is.
        config: the contents of the file.
    """

    place: str
    config: Config

    def lake(self) -> "Lake":
        """The lake. No file is read yet."""
        from pgqueue.spark.lake.lake import Lake  # noqa: PLC0415 - slow to import, so other errors come first

        return Lake(self.place)


def in_lake(verb: Callable[..., R]) -> Callable[..., R]:
    """Add ``--lake`` and ``--config``; the verb gets them as ``given``.

    Raises:
        ConfigurationError: no lake is named, or the file is not valid.
    """

    @in_lake_if_named
    @wraps(verb)
    def call(*args: Any, given: LakeOptions | None, **others: Any) -> R:  # noqa: ANN401 - the verb's own
        return verb(*args, given=require_lake(given), **others)

    return call


def in_lake_if_named(verb: Callable[..., R]) -> Callable[..., R]:
    """Add ``--lake`` and ``--config``; the verb gets them as ``given``, or None if they name no lake.

    Raises:
        ConfigurationError: the file is not valid.
    """

    @click.option(
        "--config", metavar="FILE", help="A pipeline.toml with the lake, promises, tenants and costs."
    )
    @click.option(
        "--lake",
        metavar="PATH_OR_URI",
        envvar="PGQUEUE_LAKE",
        show_envvar=True,
        help="Where the lake is: a folder, s3:// or gs://.",
    )
    @wraps(verb)
    def call(*args: Any, lake: str | None, config: str | None, **given: Any) -> R:  # noqa: ANN401 - the verb's own
        told = load(config)
        place = lake or told.lake
        return verb(*args, given=None if place is None else LakeOptions(place, told), **given)

    return call


def lasting_secrets(queue: "PgQueue") -> tuple[str, ...]:
    """The queue's patterns, for what is stored.

    Raises:
        InvalidOption: ``--reveal`` was given, which is for a screen.
    """
    options = click.get_current_context().find_object(CommandOptions)
    if options is not None and options.reveal:
        raise InvalidOption(
            "--reveal shows secrets on a screen, and roll-ups are stored and mailed: leave it out"
        )
    return queue.redact


def require_lake(given: LakeOptions | None) -> LakeOptions:
    """The lake that is named.

    Raises:
        ConfigurationError: none is.
    """
    if given is None:
        raise ConfigurationError(
            'no lake: give --lake, set PGQUEUE_LAKE, or write lake = "..." into the file that --config names'
        )
    return given


def _setting(value: str) -> tuple[str, str]:
    name, equals, setting = value.partition("=")
    if not (name and equals):
        raise click.BadParameter(f"{value!r}: write NAME=VALUE, such as spark.executor.memory=4g.")
    return name, setting


def on_spark(verb: Callable[..., R]) -> Callable[..., R]:
    """Add ``--master`` and ``--conf``; the verb gets ``spark``, which makes or finds the session when it is called."""

    @click.option(
        "--conf",
        type=_setting,
        multiple=True,
        metavar="NAME=VALUE",
        help="A setting of Spark for a session that is started here. Can be given several times.",
    )
    @click.option(
        "--master",
        metavar="URL",
        envvar="MASTER",
        show_envvar=True,
        help="Where Spark runs: local[4], spark://host:7077, yarn, k8s://…, sc://…. [default: this machine, all cores]",
    )
    @wraps(verb)
    def call(*args: Any, master: str | None, conf: tuple[tuple[str, str], ...], **given: Any) -> R:  # noqa: ANN401 - the verb's own
        def spark() -> "SparkSession":
            from pgqueue.spark.session import session  # noqa: PLC0415 - needs PySpark, which is slow to import

            return session(master=master, settings=dict(conf))

        return verb(*args, spark=spark, **given)

    return call


def span_of_days(value: str) -> list[date]:
    """A day, or a range of days written with two dots."""
    first, dots, last = value.partition("..")
    try:
        start, end = date.fromisoformat(first), date.fromisoformat(last if dots else first)
    except ValueError:
        raise click.BadParameter(
            f"{value!r}: use a day such as 2026-11-20, or days such as 2026-11-01..2026-11-20."
        ) from None
    if end < start:
        raise click.BadParameter(f"{value!r}: the last day is before the first.")
    return [start + timedelta(days=number) for number in range((end - start).days + 1)]


def days_option(name: str, words: str) -> Callable[[F], F]:
    """An option that names days, several times if wanted; the verb gets the set of them."""
    return click.option(
        name,
        type=span_of_days,
        multiple=True,
        callback=lambda _, __, spans: {day for span in spans for day in span},
        metavar="DAY",
        help=words,
    )


margin_option = click.option(
    "--margin",
    type=LENGTH,
    default="1m",
    show_default=True,
    help="A day is closed this long after its end, in UTC.",
)


def size(count: int) -> str:
    """A number of bytes, for people."""
    shown, unit = float(count), 0
    while shown >= STEP and unit < len(UNITS) - 1:
        shown, unit = shown / STEP, unit + 1
    return f"{shown:.0f} {UNITS[unit]}" if unit == 0 else f"{shown:.1f} {UNITS[unit]}"


def verified_lakes(queue: "PgQueue") -> list[str]:
    """The lakes in which a day of this database is verified."""
    return sorted({one.lake for one in queue.database.run(plans.verified_days()).values()})


def kept_for(lakes: Sequence[str]) -> str:
    """What lakes in which a day is verified mean for the history, and how that ends."""
    return (
        f"this database keeps each day of its history until it is verified in {' or '.join(lakes)} and pruned; "
        "`pgqueue pipeline leave` ends this"
    )
