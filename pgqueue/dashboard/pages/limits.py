"""The limits, and one of them: who holds it, who waits; its numbers are set."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from werkzeug.exceptions import NotFound

from pgqueue.dashboard.access import Right
from pgqueue.dashboard.page import ActionQuestion, ActionResult, Content, Field, Page, PageAction, Visit
from pgqueue.dashboard.rendering import brief
from pgqueue.errors import InvalidOption
from pgqueue.values.limits.limit import QUEUE, Limit, LimitNumbers, Rate, keys_of
from pgqueue.values.limits.status import LimitStatus

SHOWN: Final = 200
"""Keys and holders that are shown."""
LONGEST_NUMBER: Final = 9
"""Digits."""


def read(visit: Visit) -> Content:
    """All limits."""
    found = visit.queue.insight.limits()
    return {"limits": found, "jobs_of": {one.name: _jobs_of(one.name, None) for one in found}}


def read_one(visit: Visit) -> Content:
    """One limit, its keys, and the jobs that hold its places."""
    try:
        found = visit.queue.insight.limit(visit.name)
    except InvalidOption as error:
        raise NotFound(str(error)) from None
    name = found.limit.name
    keys = [
        {
            "key": _words(visit, one.key),
            "running": one.running,
            "waiting": one.waiting,
            "next_start": one.next_start,
            "jobs_of": _jobs_of(
                name, None if visit.redaction.named_in(_values(one.key)) else _values(one.key)
            ),
        }
        for one in found.keys[:SHOWN]
    ]
    holders = [
        {
            "job_id": one.job_id,
            "task": one.task,
            "queue": one.queue,
            "lane": " and ".join(_words(visit, key.text) for key in keys_of(one.lane) if key.limit == name),
            "worker": one.worker,
            "since": one.since,
        }
        for one in found.holders[:SHOWN]
    ]
    return {
        "limit": found.limit,
        "jobs_of": _jobs_of(name, None),
        "keys": keys,
        "more_keys": max(0, len(found.keys) - SHOWN),
        "holders": holders,
        "more_holders": max(0, len(found.holders) - SHOWN),
    }


def _values(key: str) -> dict[str, Any]:
    """The arguments in a key, and their values; nothing where they are hashed, or there are none."""
    try:
        found = msgspec.json.decode(key.partition(" ")[2] or "{}")
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _words(visit: Visit, key: str) -> str:
    """A key as people read it: ``customer 2``; the limit's name is on the page already."""
    values = _values(key)
    if not values:
        return visit.redaction.text(key.partition(" ")[2]) or ""
    shown = visit.redaction.value(values)
    return ", ".join(
        f"{name} {value if isinstance(value, str) else brief(value)}" for name, value in shown.items()
    )


def _jobs_of(name: str, values: Mapping[str, Any] | None) -> dict[str, str] | None:
    """The filter of the list of jobs under a limit, or under a key of it; None: no filter says which these are."""
    kind, _, rest = name.partition(":")
    if kind == "queue":
        return {"queue": rest}
    if kind != "task":
        return None
    filters = {"task": rest.partition(":")[0]}
    return {**filters, "args": msgspec.json.encode(values).decode()} if values else filters


def _find_limit(visit: Visit) -> LimitStatus | None:
    return next((one for one in visit.queue.insight.limits() if one.name == visit.name), None)


def _ask(visit: Visit) -> ActionQuestion:
    known = _find_limit(visit)
    numbers = None if known is None else known.numbers
    return ActionQuestion(
        title=f"Set the numbers of limit {visit.name}?",
        text="Workers keep the new numbers from their next claim on, whatever the code says.",
        button="Set",
        back=_back(visit),
        destroys=False,
        fields=_fields(numbers),
        facts=() if known is None else _facts(known),
        possible=known is not None or visit.name.startswith(QUEUE),
    )


def _fields(numbers: LimitNumbers | None) -> tuple[Field, ...]:
    """A limit stays what it is: a number of jobs, or a rate."""
    at_once = Field(
        name="most",
        label="At once",
        kind="number",
        hint="jobs of a key that run at once",
        value="" if numbers is None or numbers.most is None else str(numbers.most),
    )
    rate = (
        Field(name="rate", label="Rate", hint="how many start: 100/minute, 5/second, 3/15m"),
        Field(name="burst", label="Burst", hint="how many start at once after a pause; empty: 1"),
    )
    if numbers is None:
        return at_once, *rate
    return rate if numbers.most is None else (at_once,)


def _facts(known: LimitStatus) -> tuple[tuple[str, object], ...]:
    return (
        ("Now", known.numbers.said),
        ("The code says", known.numbers.declared or "nothing"),
        ("Running jobs", f"{known.running:,}"),
        ("Waiting jobs", f"{known.waiting:,}"),
    )


def _set(visit: Visit) -> ActionResult:
    most, rate, burst = (visit.field(name) for name in ("most", "rate", "burst"))
    if rate and most:
        raise InvalidOption(
            f"most={most!r:.40} and rate={rate!r:.40}: a limit is one of the two; leave the other empty"
        )
    if rate:
        chosen: Limit | Rate = Rate(rate, burst=_whole("burst", burst or "1"))
    elif burst:
        raise InvalidOption(f"burst={burst!r:.40}: it belongs to a rate, so give the rate, too")
    else:
        chosen = Limit(_whole("most", most))
    now = visit.queue.control.limits.set(visit.name, chosen, by=visit.by)
    return ActionResult(f"Limit {visit.name}: {now.numbers.said}.", _back(visit))


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER):
        raise InvalidOption(f"{name}={text!r:.40}: write a whole number")
    return int(text)


def _ask_unset(visit: Visit) -> ActionQuestion:
    known = _find_limit(visit)
    possible = known is not None and known.set_at is not None
    return ActionQuestion(
        title=f"Let limit {visit.name} be as the code says?",
        text="The numbers that were set are forgotten; a limit that no code declares is gone."
        if possible
        else "No operator has set its numbers.",
        button="Unset",
        back=_back(visit),
        facts=() if known is None else _facts(known),
        possible=possible,
    )


def _unset(visit: Visit) -> ActionResult:
    visit.queue.control.limits.unset(visit.name, by=visit.by)
    return ActionResult(f"Limit {visit.name} is as the code says.", visit.url("limits"))


def _back(visit: Visit) -> str:
    return visit.url("limits") if _find_limit(visit) is None else visit.url("limit", name=visit.name)


PAGES = (
    Page(name="limits", path="/limits", title="Limits", read=read, place=80),
    Page(name="limit", path="/limit", title="Limit", read=read_one, under="limits"),
)
ACTIONS = (
    PageAction(name="limit-set", path="/limit/set", right=Right.SET, ask=_ask, do=_set, under="limits"),
    PageAction(
        name="limit-unset", path="/limit/unset", right=Right.SET, ask=_ask_unset, do=_unset, under="limits"
    ),
)
