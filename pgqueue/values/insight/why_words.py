"""The causes for which a job does not run, in the order in which they have to go, and how each is said. Pure rules.

A pause comes first; then the workers: alive, serving, knowing the task, able, with a free slot; then the limits.
:mod:`pgqueue.values.insight.why` makes one sentence of them.
"""

from collections.abc import Iterator, Sequence
from shlex import quote
from typing import Literal, NamedTuple, TypeAlias

from pgqueue.values.flows.record import shorten_text
from pgqueue.values.insight.why_facts import MOST_AHEAD, MOST_NAMED, LimitFacts, NodeFacts, WhyFacts
from pgqueue.values.limits.limit import lane_keys
from pgqueue.values.signals import spoken_reason
from pgqueue.values.workers.lease import duration_text

Reason: TypeAlias = Literal[
    "no record",
    "ended",
    "running",
    "worker lost",
    "blocked",
    "dead node",
    "limit full",
    "limit unknown",
    "rate",
    "turn",
    "not due",
    "paused",
    "hidden",
    "no worker",
    "worker unresponsive",
    "task unknown",
    "no free slot",
    "locked",
    "waiting",
]
DISABLE = "run `alter table pgqueue.jobs disable row level security`, or give their roles a policy"
LONGEST_MESSAGE = 200
"""Characters of an error's message in a sentence."""


class Cause(NamedTuple):
    """A reason why a job does not run, and what is said of it."""

    reason: Reason
    words: str


def obstacles(facts: WhyFacts) -> Iterator[Cause]:
    """The causes of a job that waits, the first one that has to go at the front."""
    if facts.paused:
        by = f" by {facts.paused_by}" if facts.paused_by else ""
        why = f" ({facts.paused_why})" if facts.paused_why else ""
        seconds = max(0.0, facts.paused_for or 0.0)
        since = f"queue {facts.queue!r} has been paused for {duration_text(seconds)}, since {facts.instant(-seconds)},{by}{why}"
        yield Cause("paused", f"{since.rstrip(',')}: run `pgqueue queues resume {quote(facts.queue)}`")
    if facts.hidden:
        yield Cause(
            "hidden", "row-level security hides all jobs from workers that are not the owner: " + DISABLE
        )
    yield from _workers(facts)
    yield from _limits(facts)
    if facts.locked_by is not None:
        yield Cause("locked", _locked_text(facts))


def _workers(facts: WhyFacts) -> Iterator[Cause]:
    queue = repr(facts.queue)
    if facts.alive == 0:
        yield Cause("no worker", "no worker is alive: start one with `pgqueue worker`")
    elif facts.serving == 0:
        yield Cause("no worker", _not_served(facts))
    elif facts.knowing == 0:
        yield Cause(
            "task unknown",
            f"no live worker of queue {queue} runs task {facts.task!r}{_for_how_long(facts.unknown_for)}: "
            "is its module imported by the worker's --app, and do its --tasks leave it out?" + _quiet(facts),
        )
    else:
        yield from _causes_at_workers(facts)


def _quiet(facts: WhyFacts) -> str:
    return f" {_many(facts.quiet, 'quiet worker')} of the queue may run it" if facts.quiet else ""


def _for_how_long(seconds: float | None) -> str:
    return "" if seconds is None else f", and none has for {duration_text(seconds)}"


def _causes_at_workers(facts: WhyFacts) -> Iterator[Cause]:
    """Why the workers that serve the queue and may know the task do not take the job."""
    unable = facts.blocked_workers + facts.not_looking
    if unable >= facts.knowing:
        yield _unable(facts)
    if unable < facts.knowing <= unable + facts.busy:
        yield _no_free_slot(facts, unable)
        if unable:
            yield _unable(facts)


def _no_free_slot(facts: WhyFacts, unable: int) -> Cause:
    jobs = _list_names([str(job) for job in facts.running or ()])
    held = f", by jobs {jobs}" if jobs else ""
    able = "worker that serves" if facts.knowing == 1 else "workers that serve"
    which = f"{facts.busy:,} of the {facts.knowing:,}" if unable else f"the {facts.knowing:,}"
    others = ""
    if unable:
        others = f"; the other{' claims' if unable == 1 else 's claim'} no jobs now"
        others += f": {_loop(facts)}" if facts.blocked else ""
    return Cause(
        "no free slot",
        f"no slot is free: all are taken at {which} {able} queue {facts.queue!r} and may know its task{held}{others}",
    )


def _loop(facts: WhyFacts) -> str:
    return f"the event loop of {facts.blocked_host}, process {facts.blocked_pid}, has been blocked {facts.blocked}"


def _not_served(facts: WhyFacts) -> str:
    if not facts.quiet and not facts.stopping:
        queue = repr(facts.queue)
        none = (
            f"the only live worker does not serve queue {queue}"
            if facts.alive == 1
            else f"none of the {facts.alive:,} live workers serves queue {queue}"
        )
        start = f"start one that serves it (`pgqueue worker --queues {quote(facts.queue)}`)"
        return f"{none}: {start}, or enqueue to another queue"
    said = []
    if facts.quiet:
        said.append(
            f"{_many(facts.quiet, 'live worker')} {'is' if facts.quiet == 1 else 'are'} quiet (`pgqueue workers resume` ends that)"
        )
    if facts.stopping:
        said.append(f"{_many(facts.stopping, 'live worker')} stop{'s' if facts.stopping == 1 else ''}")
    return f"of queue {facts.queue!r} {' and '.join(said)}, and no other serves it"


def _unable(facts: WhyFacts) -> Cause:
    serve = f"{_many(facts.knowing, 'worker')} serve{'s' if facts.knowing == 1 else ''} queue {facts.queue!r}"
    if facts.blocked is None:
        return Cause(
            "no worker",
            f"no worker of queue {facts.queue!r} has looked for jobs in time, of {_many(facts.knowing, 'live worker')}",
        )
    more = f"; {facts.not_looking:,} of them did not look for jobs in time" if facts.not_looking else ""
    return Cause("worker unresponsive", f"{serve}, and none claims jobs now: {_loop(facts)}{more}")


def _limits(facts: WhyFacts) -> Iterator[Cause]:
    for one in facts.limits:
        if one.is_unknown and one.declared:
            yield Cause(
                "limit unknown",
                f"no numbers of limit {one.name!r} are stored: a worker whose code has it stores them as it claims",
            )
        elif one.is_unknown:
            yield Cause("limit unknown", f"no numbers of limit {one.name!r} are stored{_undeclared(one)}")
        elif one.is_full:
            yield Cause("limit full", f"{_full(one)}{_undeclared(one)}")
    closed = max(
        (one for one in facts.limits if one.is_closed), key=lambda one: one.opens_in or 0.0, default=None
    )
    if closed is not None:
        seconds = closed.opens_in or 0.0
        opens = f"rate {closed.name!r} opens in {duration_text(seconds)}, at {facts.instant(seconds)}"
        first = f", for {_jobs(facts.ahead_in_lane)} of its lane first" if facts.ahead_in_lane else ""
        yield Cause("rate", f"{opens}{first}{_undeclared(closed)}")
    if facts.in_lane and (facts.ahead_in_lane or facts.in_other_lanes):
        yield Cause("turn", _turn(facts))


def _undeclared(limit: LimitFacts) -> str:
    if limit.declared:
        return ""
    return (
        f"; no task declares this limit any more: `pgqueue limits delete {quote(limit.name)}` frees its jobs"
    )


def _full(limit: LimitFacts) -> str:
    if limit.most == 0:
        return f"limit {limit.name!r} is 0, so no job of it starts: raise it with `pgqueue limits set`"
    held = [
        f"{one.job} ({f'on {one.worker}' if one.worker else 'lost, or it waits for its retry'})"
        for one in limit.held_by
    ]
    jobs = f": held by job{'' if len(held) == 1 else 's'} {_list_names(held)}" if held else ""
    if limit.places > 1:
        return f"limit {limit.name!r} has {limit.running:,} of {limit.most:,} places taken, and the job takes {limit.places:,}{jobs}"
    return f"limit {limit.name!r} is full, {limit.running:,} of {limit.most:,}{jobs}"


def _turn(facts: WhyFacts) -> str:
    before = f"behind {_jobs(facts.ahead_in_lane)} of its key" if facts.ahead_in_lane else ""
    others = f"in turn with {_jobs(facts.in_other_lanes)} of other keys" if facts.in_other_lanes else ""
    return f"it is next {others}" if not before else ", and ".join(filter(None, (f"it is {before}", others)))


def _locked_text(facts: WhyFacts) -> str:
    named = f" ({facts.locked_by_application})" if facts.locked_by_application else ""
    since = "" if facts.locked_for is None else f", which has been open for {duration_text(facts.locked_for)}"
    return (
        f"its row is locked by a transaction of session {facts.locked_by}{named}{since}: workers skip locked jobs. "
        f"End that transaction, or run select pg_terminate_backend({facts.locked_by})"
    )


def blocked_cause(job_id: int, facts: WhyFacts) -> Cause:
    """What a blocked job outside of a lane waits for: other nodes of its flow, a signal, a time, or what has been named."""
    if facts.flow_behind is not None:
        return Cause(
            "blocked", f"it is blocked: flow {facts.flow} waits for its turn, behind flow {facts.flow_behind}"
        )
    if facts.nodes:
        dead = next((node for node in facts.nodes if node.state == "failed"), None)
        if dead is not None:
            return Cause("dead node", _dead(dead))
        named = _list_names([_node(node) for node in facts.nodes])
        return Cause("blocked", f"it is blocked, and waits for {named}, of flow {facts.flow}")
    if facts.flow is not None:
        return Cause("blocked", f"it is blocked, and waits for the start of its group, of flow {facts.flow}")
    if not facts.waits_for:
        said = "it is blocked, and nothing is recorded that it waits for: cancel it, and enqueue it again"
        return Cause("blocked", said)
    deadlines = [*(facts.waits_until or ()), *[None] * len(facts.waits_for)]
    named = ", ".join(
        spoken_reason(name, job_id) + _at_most(facts, left)
        for name, left in zip(facts.waits_for[:MOST_NAMED], deadlines, strict=False)
    )
    more = ", and more" if len(facts.waits_for) > MOST_NAMED else ""
    return Cause("blocked", f"it is blocked, and waits for {named}{more}")


def spoken_wait(lane: str | None, waits_for: str | None, job_id: int) -> str | None:
    """What a blocked job waits for, in a few words for a list; None: nothing is known.

    Args:
        lane: the lane in which it waits for the limits of its task; None: it waits in none.
        waits_for: the first of the other things that it waits for.
        job_id: which job.
    """
    if lane is not None:
        names = [key.limit for key in lane_keys(lane).limiting]
        return f"limit {shorten_text(names[0])}" if names else "limit of its queue"
    if waits_for is None:
        return None
    kind = waits_for.partition(":")[0]
    return spoken_reason(waits_for, job_id) if kind in {"signal", "timer"} else "workflow"


def _node(node: NodeFacts) -> str:
    job = "" if node.job is None else f"job {node.job}, "
    state = node.job_state or ("running" if node.state == "released" else node.state)
    return f"{shorten_text(node.label)!r} ({job}{state})"


def _dead(node: NodeFacts) -> str:
    inside = "" if node.kind == "job" else f", in which job {node.job} is dead" if node.is_dead else ""
    failed = "is dead" if node.kind == "job" and node.is_dead else "has failed"
    job = f" (job {node.job})" if node.kind == "job" and node.job is not None else ""
    why = f" ({node.dead_reason})" if node.dead_reason else ""
    error = f": {_error(node.error, node.message)}" if node.error else ""
    gone = "" if node.is_dead else "; the dead job has been deleted"
    runs = f"retry it with `pgqueue dead retry {node.job}`" if node.is_dead else "cancel the flow"
    return f"it waits for {shorten_text(node.label)!r}{job}, which {failed}{inside}{why}{error}{gone}; {runs}"


def _at_most(facts: WhyFacts, seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds <= 0:
        return ", whose deadline has passed"
    return f", for {duration_text(seconds)} at most, until {facts.instant(seconds)}"


def running_cause(job_id: int, facts: WhyFacts) -> Cause:
    """How a job runs."""
    since = facts.since or 0.0
    attempt = f"attempt {facts.attempts} of {facts.max_attempts} has been running for {duration_text(since)}"
    if facts.lease_left is None or facts.lease_left < 0:
        return Cause("worker lost", f"{attempt}, and its worker is gone: {_taken_over(facts)}")
    asked = "; its worker has been asked to cancel it" if facts.cancel_requested else ""
    said = f"{attempt}, since {facts.instant(-since)}, on {facts.host}, process {facts.pid}{asked}"
    if facts.overruns:
        said += "; it has passed its timeout, and keeps its slot and its places in limits until its function returns"
    if facts.is_silent:
        said += (
            f"; its worker was last heard of {duration_text(facts.heard_for or 0.0)} ago: if it stays silent, "
            f"another worker takes the job over in {duration_text(facts.lease_left)}"
        )
    if (loop := facts.blocked) is None:
        return Cause("running", said)
    if loop.job == job_id:
        return Cause(
            "running",
            f"{said}; it has blocked its worker's event loop for {duration_text(loop.seconds)} at {loop.where}",
        )
    return Cause("running", f"{said}; the event loop of its worker has been blocked {loop}")


def _taken_over(facts: WhyFacts) -> str:
    if facts.alive:
        return "another worker takes the job over at its next sweep"
    return "no worker is alive that could take the job over: start one with `pgqueue worker`"


def failures_text(facts: WhyFacts) -> str:
    """How many attempts failed, and the last error."""
    if not facts.attempts:
        return ""
    failed = f", after {facts.attempts} of {facts.max_attempts} attempts failed"
    return failed + (
        f", the last with {_error(facts.last_error, facts.last_message)}" if facts.last_error else ""
    )


def suspect_text(facts: WhyFacts) -> str:
    """What is said of a job whose workers died."""
    if not facts.suspect:
        return ""
    died = "a worker" if facts.crashes <= 1 else f"{facts.crashes} workers"
    return f"; {died} died with it: after as many deaths as its task's crashes= says (by default 3) it runs in quarantine"


def ahead(facts: WhyFacts) -> str:
    """How many jobs are before a ready job, where nothing else is in its way."""
    if not facts.ahead:
        return ""
    about = "about " if facts.ahead_estimated else ""
    return f", behind {about}{facts.ahead:,} ready job{'s' if facts.ahead > 1 else ''}"


def workers_text(facts: WhyFacts) -> str:
    """Which workers a job waits for that nothing else keeps from its start."""
    next_one = "it is next, and " if facts.ahead == 0 else ""
    serves = "serves" if facts.serving == 1 else "serve"
    return f"{next_one}{_many(facts.serving, 'worker')} with {_many(facts.slots, 'slot')} {serves} its queue"


def _error(kind: str | None, message: str | None) -> str:
    line = next(iter((message or "").strip().splitlines()), "")
    return f"{kind}: {shorten_text(line, LONGEST_MESSAGE)}" if line else str(kind)


def _jobs(number: int | None) -> str:
    more = " or more" if (number or 0) >= MOST_AHEAD else ""
    return f"{number:,}{more} job{'' if number == 1 else 's'}"


def _list_names(named: Sequence[str]) -> str:
    shown = [*named[:MOST_NAMED], *(["more"] if len(named) > MOST_NAMED else [])]
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
