"""Promise 4: at most one live job has a unique key.

A job was certainly live from the answer to its enqueue until the last act of its last attempt whose verdict was recorded: the
one is written after the commit, the other before it. Two such times of one key must not overlap.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

from pgqueue.values.history.events import Violation
from pgqueue.values.history.index import History, Life, Turn
from pgqueue.values.history.rules import Rules

PROMISE = 4


def one_live_job_per_key(history: History, _: Rules) -> Iterator[Violation]:
    """The times in which jobs of one key were certainly live do not overlap."""
    spans: dict[str, list[tuple[float, float, Life]]] = defaultdict(list)
    for life in history.lives.values():
        if life.may_exist and life.enqueued is not None and life.enqueued.key is not None:
            spans[life.enqueued.key] += ((*span, life) for span in _live(life))
    for key, found in spans.items():
        yield from _overlaps(key, sorted(found, key=lambda one: one[:2]))


def _overlaps(key: str, spans: list[tuple[float, float, Life]]) -> Iterator[Violation]:
    longest: tuple[float, float, Life] | None = None
    for span in spans:
        if longest is not None and span[0] < longest[1] and span[2] is not longest[2]:
            one, other = longest[2], span[2]
            yield Violation(
                PROMISE,
                f"jobs {one.job} and {other.job} were live at the same time with the key {key!r}",
                (*one.evidence, *other.evidence),
            )
        if longest is None or span[1] > longest[1]:
            longest = span


def _live(life: Life) -> list[tuple[float, float]]:
    """When it was certainly live: once since its enqueue, and once since each retry of it after it was dead."""
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


def _last_act(life: Life, turn: Turn) -> float:
    if not turn.heard or turn.started is None:
        return 0.0
    acts = [turn.started] if turn.stopped is None or life.transactional else [turn.started, turn.stopped]
    return acts[-1].at
