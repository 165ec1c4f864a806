"""Promise 5: limits, rates and ordered keys hold across all workers.

A task certainly runs from its first act to its last one, as long as its worker holds the claim: an attempt that was superseded
while it runs does not count any more.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from pgqueue.values import gcra
from pgqueue.values.history.events import Declared, Started, Violation
from pgqueue.values.history.index import History, Life, Turn
from pgqueue.values.history.rules import Rules

PROMISE = 5
MICROSECONDS = 1_000_000


def limits_hold(history: History, rules: Rules) -> Iterator[Violation]:
    """No more jobs of a key run at once than its limit allows."""
    for limit, key, lives in _keyed(history):
        if limit.most is not None:
            yield from _crowded(history, rules, key, limit.most, lives)


def rates_hold(history: History, rules: Rules) -> Iterator[Violation]:
    """Jobs of a key start no faster than its rate allows."""
    for limit, key, lives in _keyed(history):
        if limit.every is not None:
            yield from _too_fast(rules, key, limit, [one for life in lives for one in life.starts])


def keys_are_ordered(history: History, _: Rules) -> Iterator[Violation]:
    """The jobs of an ordered key start in the order of their places, and none before all attempts of those ahead of it."""
    for limit, key, lives in _keyed(history):
        if limit.ordered:
            yield from _out_of_order(key, lives)


def _keyed(history: History) -> Iterator[tuple[Declared, str, list[Life]]]:
    lives: dict[str, list[Life]] = defaultdict(list)
    for life in history.lives.values():
        for key in () if life.enqueued is None else life.enqueued.limits:
            lives[key].append(life)
    for key, found in lives.items():
        limit = history.limits.get(key.partition("=")[0])
        if limit is not None:
            yield limit, key, found


def _crowded(
    history: History, rules: Rules, key: str, most: int, lives: Sequence[Life]
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
            yield Violation(PROMISE, what, tuple(running.values()))
            return


def _runs_until(history: History, rules: Rules, life: Life, turn: Turn) -> float:
    """Until when its task certainly ran with a claim, in seconds."""
    if life.transactional:  # it may have ended within its task
        return turn.since
    held = history.until(turn) - rules.slack
    return held if turn.stopped is None else min(turn.stopped.at, held if not turn.heard else turn.stopped.at)


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
            yield Violation(PROMISE, what, tuple(starts[max(0, place - limit.burst) : place + 1]))
            return
        tat = gcra.advanced(tat if place else at, at, rate)


def _out_of_order(key: str, lives: Sequence[Life]) -> Iterator[Violation]:
    placed = [
        (life.enqueued.place, life) for life in lives if life.enqueued and life.enqueued.place is not None
    ]
    ahead: tuple[Started, Life] | None = None
    for _, life in sorted(placed, key=lambda one: one[0]):
        starts = [turn.started for turn in life.turns if turn.started is not None and turn.heard]
        if not starts or life.enqueued is None:
            continue
        if ahead is not None and _was_there(ahead[1], starts[0]) and starts[0].at < ahead[0].at:
            what = (
                f"job {life.job} of {key} started before job {ahead[1].job}, which is ahead of it, had ended"
            )
            yield Violation(PROMISE, what, (starts[0], ahead[0]))
            return
        if ahead is None or starts[-1].at > ahead[0].at:
            ahead = (starts[-1], life)


def _was_there(life: Life, started: Started) -> bool:
    return life.enqueued is not None and life.enqueued.at < started.at
