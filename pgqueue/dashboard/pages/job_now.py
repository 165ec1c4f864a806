"""Why a job does not run, on its page: the sentence with links to whatever it names, and the facts behind it as a list.

The sentence is made for every door, so it names commands for a shell. Here a link to the page that does the same takes the place
of a command, where there is one.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from pgqueue.dashboard.page import Visit
from pgqueue.values.insight.why import Why
from pgqueue.values.jobs.job import JobState
from pgqueue.values.signals import spoken_reason
from pgqueue.values.workers.lease import duration_text

_JOBS: Final = re.compile(r"\bjobs? (?=\d)")
_JOB: Final = re.compile(
    r"(\d{1,19})(?: \((?:on [^()]{1,300}|lost, or it waits for its retry)\))?(, | and )?"
)
_FLOW: Final = re.compile(r"\bflow (\d{1,19})\b")
_COMMAND: Final = re.compile(r"(?:\bretry it with |\brun |\bwith )?`(pgqueue [^`]{1,500})`")


class Part(msgspec.Struct, frozen=True):
    """A part of a text.

    Attributes:
        text: its words.
        url: the page that it names; None: it names none.
    """

    text: str
    url: str | None = None


class Fact(msgspec.Struct, frozen=True):
    """A fact behind the sentence.

    Attributes:
        name: what it is about.
        parts: what it says.
    """

    name: str
    parts: list[Part]


def linked(visit: Visit, why: Why) -> list[Part]:
    """The sentence, in parts: those that name something are links to it."""
    text = why.sentence
    found: list[tuple[int, int, str, str]] = []
    for begin, end, label, url in _links(visit, why):
        if all(end <= other[0] or begin >= other[1] for other in found):
            found.append((begin, end, label, url))
    parts, at = [], 0
    for begin, end, label, url in sorted(found):
        parts += [Part(text[at:begin]), Part(label, url)]
        at = end
    return [one for one in (*parts, Part(text[at:])) if one.text]


def _links(visit: Visit, why: Why) -> Iterator[tuple[int, int, str, str]]:
    """Where what is named stands in the sentence, what is shown in its place, and its page; the surest first."""
    text = why.sentence
    for command in _COMMAND.finditer(text):
        if (instead := _instead(visit, why, command[1])) is not None:
            yield command.start(), command.end(), *instead
    for name, url in _names(visit, why):
        yield from ((one.start(), one.end(), one[0], url) for one in re.finditer(re.escape(name), text))
    for flow in _FLOW.finditer(text):
        yield flow.start(), flow.end(), flow[0], visit.url("workflow", flow_id=int(flow[1]))
    for jobs in _JOBS.finditer(text):
        at = jobs.end()
        while job := _JOB.match(text, at):
            yield job.start(1), job.end(1), job[1], visit.url("job", job_id=int(job[1]))
            at = job.end()
            if job[2] is None:
                break


def _names(visit: Visit, why: Why) -> Iterator[tuple[str, str]]:
    """What the sentence may name, with its page."""
    facts = why.evidence
    for limit in facts.get("limits", ()):
        yield repr(limit["name"]), visit.url("limit", name=limit["name"])
        for held in limit.get("held_by", ()):
            if held.get("worker"):
                yield held["worker"], visit.url("worker", which=held["worker"])
    if facts.get("host") is not None:
        yield (
            f"{facts['host']}, process {facts['pid']}",
            visit.url("worker", which=f"{facts['host']}:{facts['pid']}"),
        )
    if facts.get("queue"):
        yield f"queue {facts['queue']!r}", visit.url("queue", name=facts["queue"])
    if facts.get("task"):
        yield f"task {facts['task']!r}", visit.url("task", name=facts["task"])


def _instead(visit: Visit, why: Why, command: str) -> tuple[str, str] | None:
    """What a person does here in place of a command: words, and the page; None: only a shell does it."""
    words = command.split()[1:]
    facts = why.evidence
    match words:
        case ["queues", "resume", *_]:
            return "resume it", visit.url("queue-resume", name=facts["queue"])
        case ["dead", "retry", job, *_] if job.isdigit():
            return "retry it", visit.url("job-retry", job_id=int(job))
        case ["workers", "resume", *_]:
            return "resuming one", visit.url("workers")
        case ["limits", verb, *_]:
            names = [one["name"] for one in facts.get("limits", ())]
            url = visit.url("limit", name=names[0]) if len(names) == 1 else visit.url("limits")
            return "deleting it" if verb == "delete" else "on its page", url
        case _:
            return None


COUNTS: Final = {
    "alive": "Live workers",
    "serving": "Workers that serve the queue",
    "knowing": "Workers that may know the task",
    "slots": "Their slots",
    "busy": "Workers without a free slot",
    "blocked_workers": "Workers with a blocked event loop",
    "not_looking": "Workers that are late to ask for jobs",
    "quiet": "Quiet workers",
    "stopping": "Workers that stop",
    "ahead": "Ready jobs before it",
    "ahead_in_lane": "Jobs before it in its lane",
    "in_other_lanes": "Jobs in other lanes",
    "crashes": "Attempts that ended with their worker",
}
"""Facts that are numbers, and what they are called."""
ALWAYS: Final = frozenset({"alive", "serving", "knowing", "ahead"})
"""Numbers that are shown if they are 0, too."""
LENGTHS: Final = {
    "paused_for": "Paused for",
    "unknown_for": "No worker has run its task for",
    "lease_left": "Left of its worker's lease",
    "heard_for": "Since its worker's last heartbeat",
    "expires_in": "Expires in",
    "locked_for": "Its row has been locked for",
    "blocked_for": "The event loop has been blocked for",
}
"""Facts that are seconds."""
TEXTS: Final = {
    "paused_by": "Paused by",
    "paused_why": "Why it is paused",
    "blocked_task": "The event loop is blocked by task",
    "blocked_where": "at",
    "last_error": "The last error",
    "last_message": "It said",
    "locked_by_application": "Its row is locked by",
}


def facts_of(visit: Visit, why: Why) -> list[Fact]:
    """The facts that the sentence was made of, as a list for people; ``/api`` has them as they are."""
    facts = why.evidence
    if not facts:
        return []
    shown = [_fact("Causes", ", ".join(facts.get("causes", ())))]
    if why.state is not JobState.RUNNING:
        shown.append(_fact("Due", _relative(facts.get("due_in", 0.0))))
    shown += [
        _fact(name, f"{facts[key]:,}")
        for key, name in COUNTS.items()
        if facts.get(key) or key in ALWAYS & facts.keys()
    ]
    shown += [
        _fact(name, duration_text(max(0.0, facts[key]))) for key, name in LENGTHS.items() if key in facts
    ]
    shown += [_fact(name, str(facts[key])) for key, name in TEXTS.items() if facts.get(key)]
    if running := facts.get("running"):
        shown.append(Fact("Jobs in these slots", _listed(_job(visit, one) for one in running)))
    shown += [_limit(visit, one) for one in facts.get("limits", ())]
    for name, left in zip(
        facts.get("waits_for", ()), [*(facts.get("waits_until") or ()), *[None] * 6], strict=False
    ):
        until = "" if left is None else f", for {duration_text(max(0.0, left))} at most"
        shown.append(_fact("Waits for", f"{spoken_reason(name, why.job_id)}{until}"))
    shown += [_node(visit, one) for one in facts.get("nodes", ())]
    for key, name in (("flow", "Flow"), ("flow_behind", "Behind flow")):
        if key in facts:
            shown.append(Fact(name, [Part(str(facts[key]), visit.url("workflow", flow_id=facts[key]))]))
    return [one for one in shown if any(part.text for part in one.parts)]


def _fact(name: str, text: str) -> Fact:
    return Fact(name, [Part(text)])


def _relative(seconds: float) -> str:
    length = duration_text(abs(seconds))
    return f"in {length}" if seconds > 0 else f"{length} ago"


def _job(visit: Visit, job_id: int) -> Part:
    return Part(str(job_id), visit.url("job", job_id=job_id))


def _listed(parts: Iterator[Part]) -> list[Part]:
    found: list[Part] = []
    for one in parts:
        found += [Part(", "), one] if found else [one]
    return found


def _limit(visit: Visit, limit: dict[str, Any]) -> Fact:
    most, running = limit.get("most"), limit.get("running", 0)
    said = f" {limit['key']}" if limit["key"] != limit["name"] else ""
    if most is not None:
        said += f": {running:,} of {most:,} places are taken"
    if opens := limit.get("opens_in"):
        said += f": opens in {duration_text(max(0.0, opens))}"
    parts = [Part(limit["name"], visit.url("limit", name=limit["name"])), Part(said)]
    held = limit.get("held_by", ())
    if held:
        parts += [Part(", by "), *_listed(_job(visit, one["job"]) for one in held)]
    return Fact("Limit", parts)


def _node(visit: Visit, node: dict[str, Any]) -> Fact:
    parts = [Part(f"{node['label']!s:.200}, {node.get('job_state') or node['state']}")]
    if node.get("job") is not None:
        parts += [Part(": job "), _job(visit, node["job"])]
    if node.get("message"):
        parts.append(Part(f", {node.get('error')}: {node['message']}"))
    return Fact("Waits for", parts)
