"""What promises say of jobs beside each other: of one key, one limit, one line, one schedule, one workflow.

- Promise 4: at most one live job has a unique key. A job was certainly live from the answer to its enqueue until the last act of
  its last attempt whose verdict was recorded: the one is written after the commit, the other before it. Two such times of one key
  must not overlap.
- Promise 5: limits, rates and ordered keys hold across all workers. A task certainly runs from its first act to its last one, as
  long as its worker holds the claim: an attempt that was superseded while it runs does not count any more.
- Promise 9: ready jobs of one queue and priority start in order. The writer of the log names lines in which order can be told:
  jobs of one queue and one priority, without delays, limits and flows, with places in the order of their ``run_at`` and ids. Only
  first claims count: a retry stands in the line anew.
- Promise 13: a schedule's tick makes one job; a job of a workflow starts when those before it have succeeded, and only then.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from pgqueue.chaos.history.events import Declared, Event, JobName, Started, Violation
from pgqueue.chaos.history.index import History, ObservedAttempt, ObservedJob, Rules
from pgqueue.values.limits import gcra

ONE_LIVE_JOB = 4
LIMITS = 5
MICROSECONDS = 1_000_000
IN_ORDER = 9
REPEATS = 13


def one_live_job_per_key(history: History, _: Rules) -> Iterator[Violation]:
    """The times in which jobs of one key were certainly live do not overlap."""
    spans: dict[str, list[tuple[float, float, ObservedJob]]] = defaultdict(list)
    for life in history.lives.values():
        if life.may_exist and life.enqueued is not None and life.enqueued.key is not None:
            spans[life.enqueued.key] += ((*span, life) for span in _live(life))
    for key, found in spans.items():
        yield from _overlaps(key, sorted(found, key=lambda one: one[:2]))


def _overlaps(key: str, spans: list[tuple[float, float, ObservedJob]]) -> Iterator[Violation]:
    longest: tuple[float, float, ObservedJob] | None = None
    for span in spans:
        if longest is not None and span[0] < longest[1] and span[2] is not longest[2]:
            one, other = longest[2], span[2]
            yield Violation(
                ONE_LIVE_JOB,
                f"jobs {one.job} and {other.job} were live at the same time with the key {key!r}",
                (*one.evidence, *other.evidence),
            )
        if longest is None or span[1] > longest[1]:
            longest = span


def _live(life: ObservedJob) -> list[tuple[float, float]]:
    """Return when a job was certainly live: once since its enqueue, and once since each retry of it after it was dead."""
    began = [life.enqueued.at] if life.enqueued and life.enqueued.commit == "acknowledged" else []
    began += [one.at for one in life.revived if not one.purged]
    ended = list(began)
    for turn in life.turns:
        place = bisect_right(began, turn.since) - 1
        if place >= 0:
            ended[place] = max(ended[place], _last_act(life, turn))
    if life.live is not None and began:
        ended[-1] = max(ended[-1], life.live.at)
    return list(zip(began, ended, strict=True))


def _last_act(life: ObservedJob, turn: ObservedAttempt) -> float:
    if not turn.heard or turn.started is None:
        return 0.0
    acts = [turn.started] if turn.stopped is None or life.transactional else [turn.started, turn.stopped]
    return acts[-1].at


def limits_hold(history: History, rules: Rules) -> Iterator[Violation]:
    """No more jobs of a key run at once than its limit allows."""
    for limit, key, lives in _limits_by_key(history):
        if limit.most is not None:
            yield from _check_most(history, rules, key, limit.most, lives)


def rates_hold(history: History, rules: Rules) -> Iterator[Violation]:
    """Jobs of a key start no faster than its rate allows."""
    for limit, key, lives in _limits_by_key(history):
        if limit.every is not None:
            yield from _too_fast(rules, key, limit, [one for life in lives for one in life.starts])


def keys_are_ordered(history: History, _: Rules) -> Iterator[Violation]:
    """The jobs of an ordered key start in the order of their places, and none before all attempts of those ahead of it."""
    for limit, key, lives in _limits_by_key(history):
        if limit.ordered:
            yield from _out_of_order(key, lives)


def _limits_by_key(history: History) -> Iterator[tuple[Declared, str, list[ObservedJob]]]:
    lives: dict[str, list[ObservedJob]] = defaultdict(list)
    for life in history.lives.values():
        for key in () if life.enqueued is None else life.enqueued.limits:
            lives[key].append(life)
    for key, found in lives.items():
        limit = history.limits.get(key.partition("=")[0])
        if limit is not None:
            yield limit, key, found


def _check_most(
    history: History, rules: Rules, key: str, most: int, lives: Sequence[ObservedJob]
) -> Iterator[Violation]:
    steps = sorted(
        (at, change, started.job, started)
        for life in lives
        for turn in life.turns
        if (started := turn.started) is not None
        and (until := _runs_until(history, rules, life, turn)) > started.at
        for at, change in ((started.at, 1), (until, -1))
    )
    running: dict[int, Started] = {}
    for _, change, _, started in steps:
        if change < 0:
            del running[id(started)]
            continue
        running[id(started)] = started
        if len(running) > most:
            what = f"{len(running)} jobs of {key} ran at once, and its limit is {most}"
            yield Violation(LIMITS, what, tuple(running.values()))
            return


def _runs_until(history: History, rules: Rules, life: ObservedJob, turn: ObservedAttempt) -> float:
    """Until when its task certainly ran with a claim, in seconds."""
    if life.transactional:  # it may have ended within its task
        return turn.since
    until = history.until(turn)
    if turn.stopped is None:
        return until - rules.slack
    return min(turn.stopped.at, until if turn.heard else until - rules.slack)


def _too_fast(rules: Rules, key: str, limit: Declared, starts: list[Started]) -> Iterator[Violation]:
    starts.sort(key=lambda one: one.at)
    rate = (round((limit.every or 0.0) * MICROSECONDS), limit.burst)
    slack = round(rules.slack * MICROSECONDS)
    tat = 0
    for place, started in enumerate(starts):
        at = round(started.at * MICROSECONDS)
        too_early = gcra.earliest(tat, at, rate) - at if place else 0
        if too_early > slack:
            what = f"job {started.job} of {key} started {too_early / MICROSECONDS:.3f} s before its rate allowed it"
            yield Violation(LIMITS, what, tuple(starts[max(0, place - limit.burst) : place + 1]))
            return
        tat = gcra.advance_tat(tat if place else at, at, rate)


def _out_of_order(key: str, lives: Sequence[ObservedJob]) -> Iterator[Violation]:
    placed = [
        (life.enqueued.place, life) for life in lives if life.enqueued and life.enqueued.place is not None
    ]
    ahead: tuple[Started, ObservedJob] | None = None
    for _, life in sorted(placed, key=lambda one: one[0]):
        starts = [turn.started for turn in life.turns if turn.started is not None and turn.heard]
        if not starts or life.enqueued is None:
            continue
        if ahead is not None and _was_there(ahead[1], starts[0]) and starts[0].at < ahead[0].at:
            what = (
                f"job {life.job} of {key} started before job {ahead[1].job}, which is ahead of it, had ended"
            )
            yield Violation(LIMITS, what, (starts[0], ahead[0]))
            return
        if ahead is None or starts[-1].at > ahead[0].at:
            ahead = (starts[-1], life)


def _was_there(life: ObservedJob, started: Started) -> bool:
    return life.enqueued is not None and life.enqueued.at < started.at


class _LinePlace(NamedTuple):
    """A job in its line; places compare as they are served."""

    place: int
    order: int
    job: JobName
    arrived: float
    claimed: float
    life: ObservedJob


def in_order(history: History, rules: Rules) -> Iterator[Violation]:
    """No job is claimed while one that is ahead of it in its line waits, and is claimed later or never."""
    lines: dict[str, list[_LinePlace]] = defaultdict(list)
    for order, life in enumerate(history.lives.values()):
        first = life.enqueued
        if first is not None and first.line is not None and first.place is not None and _is_in_line(life):
            claimed = life.turns[0].since if life.turns else inf
            lines[first.line].append(_LinePlace(first.place, order, life.job, first.at, claimed, life))
    for line, places in lines.items():
        yield from _overtaken(line, places, rules.slack)


def _overtaken(line: str, places: list[_LinePlace], slack: float) -> Iterator[Violation]:
    """Go through the claims by time. A heap holds the jobs that waited by then, the first one of the line on top."""
    arriving = sorted(places, key=lambda one: one.arrived, reverse=True)
    waiting: list[_LinePlace] = []
    for served in sorted(places, key=lambda one: one.claimed):
        if served.claimed == inf:
            return
        while arriving and arriving[-1].arrived < served.claimed - slack:
            heappush(waiting, arriving.pop())
        while waiting and waiting[0].claimed <= served.claimed + slack:
            heappop(waiting)
        if waiting and waiting[0].place < served.place:
            what = f"job {served.job} was claimed before job {waiting[0].job}, which is ahead of it in {line}"
            yield Violation(IN_ORDER, what, (*waiting[0].life.evidence, *served.life.evidence))


def _is_in_line(life: ObservedJob) -> bool:
    """Whether a job was claimed, or waits to the end: one that was cancelled is in no other job's way."""
    return bool(life.turns) or (life.live is not None and life.live.state == "ready")


def ticks_fire_once(history: History, rules: Rules) -> Iterator[Violation]:
    """Each tick that was due has made one job, and no tick has made two."""
    made: dict[tuple[str, str], list[ObservedJob]] = defaultdict(list)
    for life in history.lives.values():
        enqueued = life.enqueued
        if life.may_exist and enqueued is not None and enqueued.schedule is not None:
            made[enqueued.schedule, enqueued.tick or ""].append(life)
    for (schedule, tick), lives in made.items():
        if len(lives) > 1:
            named = ", ".join(sorted(str(life.job) for life in lives))
            evidence = [life.enqueued for life in lives if life.enqueued is not None]
            yield Violation(
                REPEATS,
                f"schedule {schedule}: its tick {tick} made {len(lives)} jobs: {named}",
                tuple(evidence),
            )
    for due in history.due if rules.looked else ():
        if (due.schedule, due.tick) not in made:
            yield Violation(
                REPEATS, f"schedule {due.schedule}: its tick {due.tick} was due and made no job", (due,)
            )


def flows_are_exact(history: History, rules: Rules) -> Iterator[Violation]:
    """No job starts before all those have succeeded that it comes after."""
    for life in history.lives.values():
        first = min(life.starts, key=lambda one: one.at, default=None)
        if first is None or life.enqueued is None or not life.enqueued.after:
            continue
        for name in life.enqueued.after:
            before = history.lives.get(name)
            if before is not None:
                yield from _too_early(life, first, before, rules)
            else:
                yield _broken(life, f"started, and nothing is known of job {name} before it", first)


def _too_early(life: ObservedJob, first: Started, before: ObservedJob, rules: Rules) -> Iterator[Violation]:
    heard = [turn for turn in before.turns if turn.heard]
    acts = [turn.started for turn in heard] + (
        [] if before.transactional else [turn.stopped for turn in heard]
    )
    late = [act for act in acts if act is not None and act.at > first.at]
    failed = [one for one in before.records if one.state != "succeeded"]
    if late:
        yield _broken(life, f"started while job {before.job} before it still ran", first, late[0])
    elif failed and rules.looked and not before.revived:
        yield _broken(life, f"started, and job {before.job} before it is {failed[0].state}", first, failed[0])
    elif not any(before.starts):
        yield _broken(life, f"started, and job {before.job} before it never did", first)


def _broken(life: ObservedJob, what: str, *evidence: Event) -> Violation:
    first = () if life.enqueued is None else (life.enqueued,)
    return Violation(REPEATS, f"job {life.job} {what}", (*first, *evidence))
