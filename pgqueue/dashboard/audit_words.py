"""What an operator did, as a sentence whose names are links: ``deleted dead job 49319``. Pure.

An action that this file does not know, since another release noted it, is shown by its name and its target.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from pgqueue.values.bulk.operation import AuditEntry, SkipReason

SKIPPED: Final = {
    SkipReason.LOCKED: "locked by another transaction",
    SkipReason.KEY_HELD: "a live job has their unique key",
    SkipReason.OUT_OF_TURN: "another flow of their key is active",
    SkipReason.REFUSED: "refused by the database",
}
"""Why jobs were skipped."""


class Part(NamedTuple):
    """A part of a sentence.

    Attributes:
        text: what it says.
        page: the page that it links to; None: it is no link.
        values: the values of that page's address.
    """

    text: str
    page: str | None = None
    values: Mapping[str, object] = {}


class Verb(NamedTuple):
    """How an action on one thing is said.

    Attributes:
        said: what was done: ``paused queue``.
        page: the page of the thing; None: it has none.
        option: what a form calls the action.
    """

    said: str
    page: str | None
    option: str


BULK: Final = {
    "cancel": ("cancelled", "job"),
    "retry": ("retried", "dead job"),
    "retry_dead": ("retried", "dead job"),
    "purge_dead": ("deleted", "dead job"),
    "move": ("moved", "job"),
    "reprioritise": ("changed the priority of", "job"),
}
"""Actions on jobs: the verb, and what a job is called."""
VERBS: Final = {
    "run now": Verb("made due now: job", "job", "make a job due now"),
    "stack": Verb("asked for the stack of job", "job", "ask for a stack"),
    "enqueue": Verb("enqueued job", "job", "enqueue a job"),
    "pause": Verb("paused queue", "queue", "pause a queue"),
    "close": Verb("closed queue", "queue", "close a queue"),
    "resume": Verb("resumed queue", "queue", "resume a queue"),
    "set": Verb("stored the settings of queue", "queue", "set a queue"),
    "schedule add": Verb("added schedule", "schedule", "add a schedule"),
    "schedule put": Verb("changed schedule", "schedule", "change a schedule"),
    "schedule pause": Verb("paused schedule", "schedule", "pause a schedule"),
    "schedule resume": Verb("resumed schedule", "schedule", "resume a schedule"),
    "schedule fire": Verb("fired schedule", "schedule", "fire a schedule"),
    "schedule backfill": Verb("backfilled schedule", "schedule", "backfill a schedule"),
    "schedule remove": Verb("removed schedule", None, "remove a schedule"),
    "workflow cancel": Verb("cancelled workflow", "workflow", "cancel a workflow"),
    "workflow retry": Verb("retried workflow", "workflow", "retry a workflow"),
    "limit set": Verb("set limit", "limit", "set a limit"),
    "limit unset": Verb("gave back to the code: limit", "limit", "unset a limit"),
    "limit deleted": Verb("deleted limit", None, "delete a limit"),
    "limit moved": Verb("moved the jobs of limit", None, "move a limit"),
    "share weighed": Verb("weighed share", None, "weigh a share"),
    "alert silence": Verb("silenced alert", "alert", "silence an alert"),
    "alert unsilence": Verb("ended the silence of alert", "alert", "end a silence"),
    "alert remove": Verb("removed alert", None, "remove an alert"),
    "worker quiet": Verb("stopped the claims of worker", None, "make a worker quiet"),
    "worker resume": Verb("resumed worker", None, "resume a worker"),
    "worker set": Verb("changed the slots of worker", None, "set a worker"),
    "worker stop": Verb("stopped worker", None, "stop a worker"),
    "worker restart": Verb("restarted worker", None, "restart a worker"),
    "continue": Verb("continued operation", "operation", "continue an operation"),
    "keep": Verb("stored what is kept of ended jobs", None, "set what is kept"),
    "keep series": Verb("stored for how long figures are kept", None, "set which figures are kept"),
}
"""Actions on one thing, by the name that the audit has."""
_OPTIONS: Final = {"cancel": "cancel jobs", "move": "move jobs", "reprioritise": "change priorities",
                   "retry_dead": "retry dead jobs", "retry": "retry a job", "purge_dead": "delete dead jobs"}  # fmt: skip
ACTIONS: Final = {**{name: verb.option for name, verb in VERBS.items()}, **_OPTIONS}
"""What a form calls each action."""
ADDRESS: Final = {"job": "job_id", "workflow": "flow_id", "operation": "number"}
"""The placeholder in the path of a page; the other pages are given a ``name``."""
NAMED: Final = 5
"""Values of a list that a sentence names."""
HIDDEN: Final = frozenset({"why", "queues", "workers", "filter", "without_key"})
"""Details that are said elsewhere in the sentence, or beside it."""


def sentence(entry: AuditEntry) -> list[Part]:
    """What an operator did, without who: its subject.

    Args:
        entry: an entry of the audit, whose details are already without secrets.
    """
    details = entry.details or {}
    if entry.action in BULK:
        return [*_of_jobs(entry, details), *_skipped(entry)]
    verb = VERBS.get(entry.action)
    if verb is None:
        return [Part(f"{entry.action} {entry.target}"), *_others(details)]
    if entry.target == "*":
        return [
            Part(f"{verb.said}{': all' if verb.page or 'worker' in verb.said else ''}"),
            *_others(details),
        ]
    return [Part(f"{verb.said} "), _thing(verb.page, entry.target), *_others(details)]


def _of_jobs(entry: AuditEntry, details: Mapping[str, Any]) -> Iterator[Part]:
    verb, noun = BULK[entry.action]
    wanted = details.get("filter")
    wanted = wanted if isinstance(wanted, dict) else {}
    ids = wanted.get("ids")
    single = entry.target.removeprefix("job ") if entry.target.startswith("job ") else None
    if isinstance(ids, list) and len(ids) == 1 and entry.counts is not None:
        single = str(ids[0])
    if single is not None:
        yield Part(
            f"{verb} {noun} " if entry.counts is None or _done(entry) else f"{verb} nothing of {noun} "
        )
        yield _thing("job", single)
    else:
        count = _done(entry)
        yield Part(f"{verb} {count:,} {noun}{'' if count == 1 else 's'}")
        yield from _matching(wanted)
    if to := details.get("to"):
        yield Part(" to queue ")
        yield _thing("queue", str(to))
    if (priority := details.get("priority")) is not None:
        yield Part(f" to {priority}")


def _done(entry: AuditEntry) -> int:
    counts = entry.counts
    return (entry.jobs or 0) if counts is None else counts.get("done", 0) + counts.get("asked", 0)


def _matching(wanted: Mapping[str, Any]) -> Iterator[Part]:
    if queue := wanted.get("queue"):
        yield Part(" of queue ")
        yield _thing("queue", str(queue))
    if task := wanted.get("task"):
        yield Part(" of task ")
        yield _thing("task", str(task))
    rest = {name: value for name, value in wanted.items() if name not in {"queue", "task", "everything"}}
    if rest:
        yield Part(f" with {', '.join(f'{_words(name)} {_short(value)}' for name, value in rest.items())}")


def _skipped(entry: AuditEntry) -> Iterator[Part]:
    counts = entry.counts or {}
    if asked := counts.get("asked"):
        yield Part(f"; {asked:,} of them run, and their workers were asked to stop them")
    for why, words in SKIPPED.items():
        if counts.get(why):
            yield Part(f"; {counts[why]:,} skipped: {words}")


def _others(details: Mapping[str, Any]) -> Iterator[Part]:
    """What was given besides."""
    said = [f"{_words(name)} {_short(value)}" for name, value in details.items() if name not in HIDDEN]
    if said:
        yield Part(f": {', '.join(said)}")


def _thing(page: str | None, name: str) -> Part:
    if page is None or "*" in name:
        return Part(name)
    if (placeholder := ADDRESS.get(page)) is not None:
        name = name.removeprefix(f"{page} ")
        return Part(name, page, {placeholder: int(name)}) if _is_id(name) else Part(name)
    return Part(name, page, {"name": name})


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and int(text) < 1 << 63


def _words(name: str) -> str:
    return name.replace("_", " ")


def _short(value: object) -> str:
    if isinstance(value, str):
        return value[:120]
    if isinstance(value, Sequence):
        more = f" and {len(value) - NAMED:,} more" if len(value) > NAMED else ""
        return " or ".join(map(str, value[:NAMED])) + more
    return msgspec.json.encode(value).decode()[:120]
