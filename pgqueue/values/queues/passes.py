"""How places are divided among shares by their weights: stride scheduling. Pure rules.

Each share has a *pass*: how many places it was given, divided by its weight. The share with the lowest pass is next. So over any
stretch in which two shares have jobs, their numbers are as their weights, to within one job each and what one claim takes. What
a share leaves, since it can take no more, goes to the others at once.

Queues are divided by :mod:`pgqueue.values.queues.shares`, and lanes of limited jobs by :mod:`pgqueue.values.limits.lanes`.

Source: C. A. Waldspurger and W. E. Weihl, "Stride Scheduling: Deterministic Proportional-Share Resource Management", 1995.
"""

from collections.abc import Callable, Collection, Mapping
from heapq import heapify, heappop, heapreplace


def divide(
    passes: Mapping[str, float], steps: Mapping[str, float], room: int, give: Callable[[str], bool]
) -> set[str]:
    """Give places one at a time, each to the share whose pass is the lowest.

    Args:
        passes: of the shares, in the order in which those with the same pass have their turn.
        steps: by how much each pass grows with a place: 1 divided by the weight.
        room: how many places there are.
        give: gives a share one place; False: it can take no more.

    Returns:
        The shares that could take no more.
    """
    due = [(passed, turn, share, steps[share]) for turn, (share, passed) in enumerate(passes.items())]
    heapify(due)
    out: set[str] = set()
    while room > 0 and due:
        passed, turn, share, step = due[0]
        if give(share):
            room -= 1
            heapreplace(due, (passed + step, turn, share, step))
        else:
            heappop(due)
            out.add(share)
    return out


def learned(
    passes: Mapping[str, float], given: Mapping[str, float], out: Collection[str]
) -> dict[str, float]:
    """The passes after a claim; the lowest one is 0.

    Args:
        passes: those before it.
        given: how many places each share was given, divided by its weight.
        out: the shares that could take no more. Such a share goes along with the lowest pass of the others, so that it does not
            claim later what it did not use.
    """
    found = {**passes}
    for share, places in given.items():
        found[share] = found.get(share, 0.0) + places
    others = [passed for share, passed in found.items() if share not in out]
    now = min(others, default=max(found.values(), default=0.0))
    for share in out:
        if share in found:
            found[share] = max(found[share], now)
    lowest = min(found.values(), default=0.0)
    return {share: passed - lowest for share, passed in found.items()}
