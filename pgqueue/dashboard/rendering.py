"""How values become HTML and JSON: templates that escape all they are given, and the words in which they show values.

Numbers are exact. In JSON, whole numbers that JavaScript would round are strings. Characters that are not to be seen, or that
turn the text around them, are shown as escapes.
"""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

import jinja2
import msgspec
from markupsafe import Markup

from pgqueue.dashboard import charts, flow_picture
from pgqueue.values.jobs.job import Job, JobState
from pgqueue.values.payloads import storable
from pgqueue.values.version import __version__
from pgqueue.values.workers.health import not_returned_text
from pgqueue.values.workers.lease import duration_text, spoken_bytes

EXACT: Final = 2**53 - 1
"""The largest whole number that JavaScript reads exactly."""
LONGEST: Final = 20_000
"""Characters of a value that a page shows."""


def spelled_out(text: str) -> str:
    """Text in which control characters, and those that are not to be seen, are escapes; spaces and line ends stay."""
    return storable.spelled_out(text, keep="\n\t")


def exact(value: Any) -> Any:  # noqa: ANN401 - any value of a page
    """A value as JSON can have it, without a number that JavaScript would round."""
    return _exact(msgspec.to_builtins(value, builtin_types=(datetime,), enc_hook=str, str_keys=True))


def as_json(value: Any) -> bytes:  # noqa: ANN401 - any value of a page
    """JSON for programs."""
    return msgspec.json.encode(exact(value))


def pretty(value: object, longest: int = LONGEST) -> str:
    """The beginning of a value as indented JSON, with all its digits, at most ``longest`` characters."""
    return _beginning(value, longest, "\n… and more", indent=2)


def brief(value: object, longest: int = 120) -> str:
    """A value as JSON in one line, cut where it is long."""
    return _beginning(value, longest, "…")


def _beginning(value: object, longest: int, more: str, *, indent: int | None = None) -> str:
    text = ""
    try:
        for part in json.JSONEncoder(indent=indent, ensure_ascii=False, default=str).iterencode(value):
            text += part[: longest + 1]
            if len(text) > longest:
                return f"{spelled_out(text[:longest])}{more}"
    except (RecursionError, ValueError):
        return "(it cannot be shown)"
    return spelled_out(text)


def cut(text: str, longest: int = LONGEST) -> str:
    """Text, cut where it is long, with what is left out."""
    if len(text) <= longest:
        return spelled_out(text)
    return f"{spelled_out(text[:longest])}\n… and {len(text) - longest:,} more characters"


def moment(at: datetime | None) -> Markup | str:
    """An instant, in UTC to the second; the script shows how long ago it was, and in the reader's zone."""
    if at is None:
        return "—"
    utc = at.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        utc.isoformat(timespec="milliseconds"), f"{utc:%Y-%m-%d %H:%M:%S}"
    )


def elapsed(at: datetime | None) -> Markup | str:
    """An instant as :func:`moment` shows it; the script shows how long it has been since, without a word."""
    return Markup(str(moment(at)).replace("<time ", "<time data-for ", 1))  # noqa: S704 - it is a moment's own markup


def clock(at: datetime) -> Markup:
    """An instant as :func:`moment` shows it; the script shows it as a time of the day, or a date, in the reader's zone."""
    return Markup(str(moment(at)).replace("<time ", "<time data-clock ", 1))  # noqa: S704 - it is a moment's own markup


def time_of(job: Job) -> datetime | None:
    """The instant that tells most of a job: when it ended, or was claimed, or is due."""
    if job.ended_at is not None:
        return job.ended_at
    return job.started_at if job.state is JobState.RUNNING else job.run_at


def waited(job: Job) -> float | None:
    """For how many seconds a job waited, from when it was due to the start of its last attempt; None: none has begun."""
    if job.started_at is None or not (job.state is JobState.RUNNING or job.state.ended):
        return None
    return max(0.0, (job.started_at - job.run_at).total_seconds())


def ran(job: Job) -> float | None:
    """For how many seconds the last attempt of a job that has ended ran; None: none did, or it has not ended."""
    if job.started_at is None or job.ended_at is None:
        return None
    return max(0.0, (job.ended_at - job.started_at).total_seconds())


def moment_text(at: datetime) -> str:
    """The same as text alone, for titles."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def duration(seconds: float | timedelta | None) -> str:
    """A length of time in words."""
    if seconds is None:
        return "—"
    return duration_text(seconds.total_seconds() if isinstance(seconds, timedelta) else seconds)


def breakable(name: str) -> Markup:
    """A name that may be broken behind its dots, slashes and hyphens."""
    return Markup("").join(
        Markup("{}<wbr>").format(part) if part[-1] in "._/-:" else part
        for part in re.findall(r"[^._/:-]++[._/:-]?|[._/:-]", spelled_out(name))
    )


def naming(sentence: str, names: Sequence[str]) -> list[tuple[str, str | None]]:
    """The parts of a sentence, each with the name that it is, if it is one: names stand in the sentence in their order."""
    parts: list[tuple[str, str | None]] = []
    for name in names:
        before, found, after = sentence.partition(name)
        if found:
            parts += [(before, None), (name, name)]
            sentence = after
    return [*parts, (sentence, None)]


def number(value: float | None) -> str:
    """A number with its thousands set apart."""
    return "—" if value is None else f"{value:,}"


@cache
def templates() -> jinja2.Environment:
    """The templates of the package."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pgqueue.dashboard"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_show_value,
    )
    environment.filters |= {
        "breakable": breakable,
        "brief": brief,
        "clock": clock,
        "elapsed": elapsed,
        "ran": ran,
        "time_of": time_of,
        "waited": waited,
        "bytes": spoken_bytes,
        "naming": naming,
        "number": number,
        "cut": cut,
        "duration": duration,
        "moment": moment,
        "moment_text": moment_text,
        "not_returned": not_returned_text,
        "figure": charts.format_figure,
        "instant": charts.instant,
        "pretty": pretty,
        "svg": charts.svg,
        "bar": flow_picture.bar,
        "progress": flow_picture.progress_text,
        "node_words": flow_picture.node_words,
    }
    environment.globals |= {"version": __version__}
    return environment


def _show_value(value: Any) -> Any:  # noqa: ANN401 - what a template prints
    if isinstance(value, Markup):
        return value
    return spelled_out(value) if isinstance(value, str) else "" if value is None else value


def _exact(value: Any) -> Any:  # noqa: ANN401 - builtins
    if isinstance(value, dict):
        return {_clean(name): _exact(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_exact(inner) for inner in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > EXACT:
        return str(value)
    return _clean(value) if isinstance(value, str) else value


def _clean(text: str) -> str:
    """Text that UTF-8 can hold: half of a surrogate pair is shown as an escape."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text
