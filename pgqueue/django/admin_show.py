"""How jobs are shown on a page: their arguments, errors, states and reasons. Everything in a job is escaped.

A field may have any value, since SQL can write it: for a value that cannot be shown, a text says so; no error is raised.
"""

import json
from collections.abc import Mapping
from datetime import datetime

from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

NOTHING = "-"
SUMMARY = 100
EXPLAINED: Mapping[str, str] = {
    "exhausted": "every attempt failed",
    "refused": "the retry policy does not retry this error",
    "undecodable": "the arguments do not fit the task, or cannot be read",
    "asked": "the task raised Dead",
    "unknown": "no worker knew the task",
    "expired": "it was not started in time",
    "crashed": "it killed too many workers",
    "deadline": "what it waited for did not happen in time",
}
"""The meaning of each reason for which a job is dead."""


def as_json(value: object) -> SafeString | str:
    """A JSON value as an indented block."""
    if value is None:
        return NOTHING
    try:
        return _block(json.dumps(value, indent=2, ensure_ascii=False))
    except RecursionError:
        return "nested too deeply to be shown here"


def as_errors(errors: object) -> SafeString | str:
    """Every failed attempt: its number, time, error and traceback; the last one first and open."""
    if errors is not None and not isinstance(errors, list):
        return as_json(errors)
    shown = [_error(error) for error in reversed(errors or [])]
    if not shown:
        return NOTHING
    opened = [(SafeString(" open" if place == 0 else ""), *parts) for place, parts in enumerate(shown)]
    return format_html_join(
        "",
        '<details class="pgqueue-error"{}><summary>Attempt {} · {} · <b>{}</b></summary>{}</details>',
        opened,
    )


def as_state(state: str) -> SafeString:
    """A state, coloured by a CSS class."""
    return format_html('<span class="pgqueue-state pgqueue-{}">{}</span>', state, state)


def as_reason(reason: str | None) -> str:
    """Why a job is dead, and what that means."""
    if reason is None:
        return NOTHING
    return f"{reason}: {EXPLAINED[reason]}" if reason in EXPLAINED else reason


def breakable(name: str) -> SafeString:
    """A dotted name that the browser may break after its dots, so that columns stay narrow."""
    return format_html_join(SafeString(".<wbr>"), "{}", ((part,) for part in name.split(".")))


def shorten_text(text: str | None) -> str:
    """The beginning of a text that may be long."""
    if not text:
        return NOTHING
    return f"{text[: SUMMARY - 1]}…" if len(text) >= SUMMARY else text


def as_moment(moment: datetime | None) -> SafeString | str:
    """A moment to the second, and its distance from now: for the page of one row."""
    if moment is None:
        return NOTHING
    return format_html("{} ({})", _format_moment(moment), as_ago(moment))


def as_ago(moment: datetime | None) -> SafeString | str:
    """The distance of a moment from now, for lists; the tooltip has the moment."""
    if moment is None:
        return NOTHING
    seconds = (timezone.now() - moment).total_seconds()
    text = f"{_length(seconds)} ago" if seconds >= 0 else f"in {_length(-seconds)}"
    return format_html('<span title="{}">{}</span>', _format_moment(moment), text)


def _error(error: object) -> tuple[object, str, str, SafeString | str]:
    if not isinstance(error, Mapping):
        return "?", NOTHING, "not readable", as_json(error)
    text = f"{error.get('type')}: {error.get('message')}"
    return (
        error.get("attempt"),
        _when(error.get("at")),
        shorten_text(text),
        _block(error.get("traceback") or text),
    )


def _when(at: object) -> str:
    if at is None:
        return NOTHING
    try:
        moment = parse_datetime(str(at))
        return str(at) if moment is None else _format_moment(moment)
    except (ValueError, OverflowError):  # such as the 45th of a month, or the last hour of the year 9999
        return str(at)


def _block(text: object) -> SafeString:
    return format_html('<pre class="pgqueue-block">{}</pre>', text)


def _format_moment(moment: datetime) -> str:
    local = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    return local.isoformat(" ", "seconds")


def _length(seconds: float) -> str:
    """Like ``5 s``, ``3 min``, ``2 h``, ``9 d``."""
    for size, unit, until in ((1, "s", 120), (60, "min", 7200), (3600, "h", 172_800)):
        if seconds < until:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"
