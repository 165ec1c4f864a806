"""Plans by which operators look at limits and change them. Workers read a limit at each claim under it."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from pgqueue.errors import InvalidOption, LimitExists
from pgqueue.store import audit
from pgqueue.store.jobs.notifications import wake
from pgqueue.store.limits.lanes import relane
from pgqueue.store.plan import Statement, Steps, plan
from pgqueue.store.queues import queues
from pgqueue.store.queues.queues import SAMPLED_PAGES, WHOLE_PAGES
from pgqueue.values.hints import did_you_mean
from pgqueue.values.jobs.options import one_of
from pgqueue.values.limits.gcra import LAST, reach
from pgqueue.values.limits.limit import QUEUE, LimitNumbers
from pgqueue.values.limits.status import (
    LaneChange,
    LimitDetail,
    LimitedJobs,
    LimitHolder,
    LimitStatus,
    key_statuses,
)
from pgqueue.values.queues.settings import EXISTING, Existing, QueueSettings
from pgqueue.values.queues.standing import WHOLE, share

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = (datetime(9000, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


@plan(reads=True)
def listed(declared: Mapping[str, LimitNumbers], *, now: datetime | None = None) -> Steps[list[LimitStatus]]:
    """Every limit, with the numbers of its jobs; of a large table a sample tells how many jobs wait.

    Args:
        declared: those that the app's code has, by name; no worker may have stored them yet.
        now: the instant; the database's own by default.
    """
    known = yield from _known_limits(declared)
    ((pages, *_),) = yield Statement("insight/standing_sizes", {"now": now})
    percent = share(pages, SAMPLED_PAGES, whole=WHOLE_PAGES)
    rows = yield Statement("insight/lanes", {"percent": percent, "now": now})
    counts = {
        name: {"running": running, "lost": lost, "waiting": round(waiting * WHOLE / percent), "keys": keys}
        for name, running, lost, waiting, keys in rows
    }
    return [replace(one, estimated=percent < WHOLE, **counts.get(name, {})) for name, one in known.items()]


@plan
def show(
    name: str, declared: Mapping[str, LimitNumbers], *, now: datetime | None = None
) -> Steps[LimitDetail]:
    """One limit, its keys, and the jobs that hold its places.

    Args:
        name: which.
        declared: as for :func:`listed`.
        now: the instant; the database's own by default.

    Raises:
        InvalidOption: there is none of this name.
    """
    limit = require_limit(name, (yield from _known_limits(declared)))
    rows = yield Statement("limits/keys", {"name": name, "now": now})
    counts = {key: (running, waiting) for key, running, _, waiting in rows}
    limit = replace(
        limit,
        running=sum(row[1] for row in rows),
        lost=sum(row[2] for row in rows),
        waiting=sum(row[3] for row in rows),
        keys=sum(row[1] > 0 for row in rows),
    )
    starts: dict[str, datetime | None] = {}
    if limit.numbers.every is not None:
        params = {"name": name, "reach": min(reach(limit.numbers.rate), LAST // 2), "now": now}
        rows = yield Statement("limits/tats", params)
        starts = {key: next_start(tat, limit.numbers) for key, tat in rows}
    holders = [LimitHolder(*row) for row in (yield Statement("limits/holders", {"name": name}))]
    return LimitDetail(limit, key_statuses(counts, starts), holders)


@plan(transaction=True)
def change(
    name: str,
    numbers: LimitNumbers,
    declared: Mapping[str, LimitNumbers],
    *,
    existing: Existing = "replace",
    by: str | None,
    now: datetime | None = None,
) -> Steps[LimitStatus]:
    """Give a limit other numbers, which hold until an operator changes them again, whatever the code says.

    Args:
        name: which; one of a queue as a whole, ``queue:…``, need not exist.
        numbers: the new ones.
        declared: as for :func:`listed`.
        existing: what is done if it has other numbers.
        by: who.
        now: the instant; the database's own by default.

    Raises:
        InvalidOption: there is none of this name, or it is a limit of the other kind.
        LimitExists: it has other numbers, and ``existing`` is ``fail``; nothing was changed.
    """
    known = yield from _known_limits(declared)
    one_of("existing", existing, EXISTING, listed=repr)
    if (held := known.get(name)) is not None and existing != "replace" and _differ(held.numbers, numbers):
        if existing == "keep":
            return held
        raise LimitExists(
            f"limit {name!r} has other numbers: {held.numbers.said}, not {numbers.said}; use existing='replace' to store yours, "
            "or existing='keep' to leave them"
        )
    if not name.startswith(QUEUE) or name in known:
        refuse_other_kind(require_limit(name, known), numbers)
    yield from _set(name, numbers, declared, by=by, now=now)
    yield from audit.note("limit set", name, by=by, to=numbers.declared)
    yield from wake()
    return (yield from _known_limits(declared))[name]


def _differ(held: LimitNumbers, other: LimitNumbers) -> bool:
    return (held.most, held.every, held.burst) != (other.most, other.every, other.burst)


@plan(transaction=True)
def declare_interval(
    queue: str,
    settings: QueueSettings,
    interval: LimitNumbers,
    declared: Mapping[str, LimitNumbers],
    *,
    existing: Existing,
    by: str | None,
) -> Steps[QueueSettings]:
    """Give a queue settings, and the time between two starts of its jobs; arguments as for :func:`change`.

    Raises:
        QueueExists: it has other settings, and ``existing`` is ``fail``; nothing was changed.
        LimitExists: it has another limit, and ``existing`` is ``fail``; nothing was changed.
    """
    held = yield from queues.declare(queue, settings, existing=existing, by=by)
    yield from change(f"{QUEUE}{queue}", interval, declared, existing=existing, by=by)
    return held


@plan(transaction=True)
def unset(name: str, declared: Mapping[str, LimitNumbers], *, by: str | None) -> Steps[None]:
    """Restore the numbers that the code declares; a limit that no code declares is forgotten.

    Raises:
        InvalidOption: there is none of this name, or no code declares it and jobs wait for it.
    """
    require_limit(name, (yield from _known_limits(declared)))
    if name in declared:
        yield from _set(name, declared[name], declared, by=None, now=None, as_declared=True)
    else:
        refuse_forgetting(name, (yield from named(name)))
        yield Statement("limits/remove", {"name": name}, returns=False)
    yield from audit.note("limit unset", name, by=by)
    yield from wake()


@plan
def delete(name: str, declared: Mapping[str, LimitNumbers], *, by: str | None) -> Steps[LaneChange]:
    """Take a limit that no code declares out of the lanes of all jobs, and forget it.

    Raises:
        InvalidOption: this program's code declares it, or there is none of this name, nor a job that has it.
    """
    refuse_declared(name, declared)
    if not (yield from named(name)).jobs:
        require_limit(name, (yield from _known_limits({})))
    yield from audit.note("limit deleted", name, by=by)
    changed = yield from relane(name, None)
    if not changed.locked:  # without its row, the jobs that are left would wait for ever
        yield Statement("limits/remove", {"name": name}, returns=False)
    yield from wake()
    return changed


@plan
def move(
    name: str, to: str | None, declared: Mapping[str, LimitNumbers], *, by: str | None
) -> Steps[LaneChange]:
    """Put the jobs of a limit under another one, by the same values, or under none; the limit stays.

    Raises:
        InvalidOption: there is no limit of one of the names, it is of a queue as a whole, or the code says that the two are by other
            arguments.
    """
    known = yield from _known_limits(declared)
    if not (yield from named(name)).jobs:
        require_limit(name, known)
    check_move(name, to, known)
    yield from audit.note("limit moved", name, by=by, to=to)
    changed = yield from relane(name, to)
    yield from wake()
    return changed


@plan
def named(name: str) -> Steps[LimitedJobs]:
    """The jobs that have a limit in their lane, and the tasks that have it."""
    ((jobs, waiting, tasks),) = yield Statement("limits/named", {"name": name})
    return LimitedJobs(jobs, waiting, tasks)


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
        yield from _set(share, LimitNumbers(weight, None, None), {}, by=by, now=now)
    yield from audit.note("share weighed", share, by=by, to=weight)


@plan
def weights() -> Steps[dict[str, int]]:
    """The weights of shares that are not 1, by their keys."""
    rows = yield Statement("limits/list", {})
    return {name: most for name, most, *_ in rows if name.startswith(" ") and most}


@plan
def stored() -> Steps[dict[str, LimitStatus]]:
    """Every limit that workers or operators have stored, by name, without the numbers of its jobs."""
    return (yield from _known_limits({}))


def next_start(tat: int, numbers: LimitNumbers) -> datetime:
    """From when on the next job of a key may start, by the state of a rate."""
    every, burst = numbers.rate
    return _EPOCH + timedelta(microseconds=min(max(0, tat - every * (burst - 1)), _LATEST))


def _known_limits(declared: Mapping[str, LimitNumbers]) -> Steps[dict[str, LimitStatus]]:
    rows = yield Statement("limits/list", {})
    stored = {
        name: LimitStatus(name, LimitNumbers(most, every, burst, said), set_at, set_by)
        for name, most, every, burst, said, set_at, set_by in rows
        if not name.startswith(" ")  # the weight of a share
    }
    new = {name: LimitStatus(name, numbers, None, None) for name, numbers in declared.items()}
    return dict(sorted((new | stored).items()))


def _set(
    name: str,
    numbers: LimitNumbers,
    declared: Mapping[str, LimitNumbers],
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


def require_limit(name: str, known: Mapping[str, LimitStatus]) -> LimitStatus:
    """The limit of this name.

    Raises:
        InvalidOption: there is none.
    """
    found = known.get(name)
    if found is None:
        raise InvalidOption(
            f"limit {name!r:.200}: there is none of this name{did_you_mean(name, known)}; tasks declare limits, and a queue as a "
            f"whole is limited by setting {QUEUE}NAME"
        )
    return found


def refuse_other_kind(known: LimitStatus, numbers: LimitNumbers) -> None:
    """Refuse a rate for a limit of concurrency, and the other way around.

    Raises:
        InvalidOption: it is the other kind.
    """
    if (known.numbers.most is None) is not (numbers.most is None):
        kind, other = (
            ("a rate", "Rate(...)")
            if known.numbers.most is None
            else ("a limit of concurrency", "Limit(...)")
        )
        raise InvalidOption(f"limit {known.name!r} is {kind}; give {other}")


def refuse_declared(name: str, declared: Mapping[str, LimitNumbers]) -> None:
    """Refuse to delete a limit of this program's code.

    Raises:
        InvalidOption: the code declares it.
    """
    if name in declared:
        raise InvalidOption(
            f"limit {name!r}: the code declares it, so a worker would store it again; take it out of the code first. "
            "`pgqueue limits set` changes its numbers, and `pgqueue limits move` takes waiting jobs out of it"
        )


def refuse_forgetting(name: str, found: LimitedJobs) -> None:
    """Refuse to forget a limit for which jobs would then wait for ever.

    Raises:
        InvalidOption: jobs have it, and no task does.
    """
    if found.jobs and not found.tasks and not name.startswith(QUEUE):
        raise InvalidOption(
            f"limit {name!r}: no task declares it, and {found.jobs:,} jobs have it; `pgqueue limits delete` frees them and "
            "forgets it"
        )


def check_move(name: str, to: str | None, known: Mapping[str, LimitStatus]) -> None:
    """Refuse to put jobs under a limit that cannot hold for them.

    Args:
        name: the limit that they have.
        to: the limit that they are to get; None: none.
        known: the limits.

    Raises:
        InvalidOption: as for :func:`move`.
    """
    for one in (name, to or ""):
        if one.startswith(QUEUE):
            raise InvalidOption(
                f"limit {one!r} is of a queue as a whole: no lane has it; jobs move with their queue"
            )
    if to is None:
        return
    other = require_limit(to, known)
    if name == to:
        raise InvalidOption(f"limit {name!r}: name another limit to move to")
    if name in known and (mine := _by(known[name])) != (others := _by(other)) and None not in (mine, others):
        raise InvalidOption(
            f"limit {name!r} is by {mine or 'no argument'}, and {to!r} by {others or 'no argument'}: jobs keep the values that their "
            "key has; move them to none"
        )


def _by(limit: LimitStatus) -> str | None:
    """The arguments that a limit is by, as the code said them; None: no code did."""
    said = limit.numbers.declared
    return said.partition(" by ")[2] if said else None
