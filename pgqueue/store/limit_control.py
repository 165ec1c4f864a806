"""Plans by which operators look at limits and change them. Workers read a limit at each claim under it."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from pgqueue.errors import InvalidOption
from pgqueue.store import audit
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.values.limit import QUEUE, Numbers
from pgqueue.values.limit_status import (
    Holder,
    LaneCount,
    LimitDetail,
    LimitStatus,
    counted,
    keys_counted,
    keys_under,
)
from pgqueue.values.nearest import did_you_mean

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@plan
def listed(declared: Mapping[str, Numbers], *, now: datetime | None = None) -> Steps[list[LimitStatus]]:
    """Every limit, with the numbers of its jobs.

    Args:
        declared: those that the app's code has, by name; no worker may have stored them yet.
        now: the instant; the database's own by default.
    """
    known = yield from _known(declared)
    return counted(known.values(), (yield from _lanes(now)))


@plan
def show(name: str, declared: Mapping[str, Numbers], *, now: datetime | None = None) -> Steps[LimitDetail]:
    """One limit, its keys, and the jobs that hold its places.

    Args:
        name: which.
        declared: as for :func:`listed`.
        now: the instant; the database's own by default.

    Raises:
        InvalidOption: there is none of this name.
    """
    limit = _named(name, (yield from _known(declared)))
    lanes = yield from _lanes(now)
    starts: dict[str, datetime | None] = {}
    if limit.numbers.every is not None and limit.numbers.burst is not None:
        early = limit.numbers.every * (limit.numbers.burst - 1)
        for key, tat in (yield Statement("limits/tats", {"name": name})):
            starts[key] = _EPOCH + timedelta(microseconds=max(0, tat - early))
    rows = yield Statement("limits/holders", {})
    holders = [
        holder
        for holder in (Holder(*row) for row in rows)
        if any(key.limit == name for key in keys_under(holder.queue, holder.lane))
    ]
    return LimitDetail(counted([limit], lanes)[0], keys_counted(name, lanes, starts), holders)


@plan(transaction=True)
def change(
    name: str,
    numbers: Numbers,
    declared: Mapping[str, Numbers],
    *,
    by: str | None,
    now: datetime | None = None,
) -> Steps[LimitStatus]:
    """Give a limit other numbers, which hold until an operator changes them again, whatever the code says.

    Args:
        name: which; one of a queue as a whole, ``queue:…``, need not exist.
        numbers: the new ones.
        declared: as for :func:`listed`.
        by: who.
        now: the instant; the database's own by default.

    Raises:
        InvalidOption: there is none of this name, or it is a limit of the other kind.
    """
    known = yield from _known(declared)
    if not name.startswith(QUEUE) or name in known:
        _refuse_other_kind(_named(name, known), numbers)
    yield from _set(name, numbers, declared, by=by, now=now)
    yield from audit.note("limit set", name, by=by, to=numbers.declared)
    return (yield from _known(declared))[name]


@plan(transaction=True)
def unset(name: str, declared: Mapping[str, Numbers], *, by: str | None) -> Steps[None]:
    """Have a limit say again what the code says; one that no code declares is forgotten.

    Raises:
        InvalidOption: there is none of this name.
    """
    _named(name, (yield from _known(declared)))
    if name in declared:
        yield from _set(name, declared[name], declared, by=None, now=None, as_declared=True)
    else:
        yield Statement("limits/remove", {"name": name}, returns=False)
    yield from audit.note("limit unset", name, by=by)


@plan(transaction=True)
def weigh(share: str, weight: int | None, *, by: str | None, now: datetime | None = None) -> Steps[None]:
    """Give a share another weight.

    Args:
        share: its key.
        weight: how many of its jobs start for one of a share of weight 1; None: 1, as at first.
        by: who.
        now: the instant; the database's own by default.
    """
    if weight is None:
        yield Statement("limits/remove", {"name": share}, returns=False)
    else:
        yield from _set(share, Numbers(weight, None, None), {}, by=by, now=now)
    yield from audit.note("share weighed", share, by=by, to=weight)


@plan
def weights() -> Steps[dict[str, int]]:
    """The weights of shares that are not 1, by their keys."""
    rows = yield Statement("limits/list", {})
    return {name: most for name, most, *_ in rows if name.startswith(" ")}


def _known(declared: Mapping[str, Numbers]) -> Steps[dict[str, LimitStatus]]:
    rows = yield Statement("limits/list", {})
    stored = {
        name: LimitStatus(name, Numbers(most, every, burst, said), set_at, set_by)
        for name, most, every, burst, said, set_at, set_by in rows
        if not name.startswith(" ")  # the weight of a share
    }
    new = {name: LimitStatus(name, numbers, None, None) for name, numbers in declared.items()}
    return dict(sorted((new | stored).items()))


def _lanes(now: datetime | None) -> Steps[list[LaneCount]]:
    return [LaneCount(*row) for row in (yield Statement("limits/lanes", {"now": now}))]


def _set(
    name: str,
    numbers: Numbers,
    declared: Mapping[str, Numbers],
    *,
    by: str | None,
    now: datetime | None,
    as_declared: bool = False,
) -> Steps[None]:
    params = {
        "name": name,
        "most": numbers.most,
        "every": numbers.every,
        "burst": numbers.burst,
        "declared": declared[name].declared if name in declared else "",
        "as_declared": as_declared,
        "by": by,
        "now": now,
    }
    yield Statement("limits/set", params, returns=False)


def _named(name: str, known: Mapping[str, LimitStatus]) -> LimitStatus:
    found = known.get(name)
    if found is None:
        raise InvalidOption(
            f"limit {name!r:.200}: there is none of this name{did_you_mean(name, known)}; tasks declare limits, and a queue as a "
            f"whole is limited by setting {QUEUE}NAME"
        )
    return found


def _refuse_other_kind(known: LimitStatus, numbers: Numbers) -> None:
    if (known.numbers.most is None) is not (numbers.most is None):
        kind, other = (
            ("a rate", "Rate(...)")
            if known.numbers.most is None
            else ("a limit of concurrency", "Limit(...)")
        )
        raise InvalidOption(f"limit {known.name!r} is {kind}; give {other}")
