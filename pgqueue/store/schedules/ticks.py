"""Plans for the ticks of schedules: fire those that are due, fire one now, fire those of the past, list them.

A tick fires once. A look at due schedules is one transaction: it locks their rows, notes their ticks, adds the jobs and
moves the schedules on. A tick is a row of ``schedule_ticks``, unique by schedule and instant, and independent of its job.
Which ticks are due is decided by pure rules (:mod:`pgqueue.values.schedules.due_ticks`). A schedule whose row makes no sense, or whose
jobs the database refuses, is set aside with the error; one whose job would have to wait for another transaction is looked at
again later. The others fire.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from pgqueue.errors import InvalidOption
from pgqueue.store.plan import Row, Statement, Steps, plan
from pgqueue.store.schedules.schedules import require_row, timing_of
from pgqueue.values.jobs.options import check_text
from pgqueue.values.schedules.due_ticks import FIRED, SKIPPED, WAITING, DecidedTick, ScheduleLook, look, past
from pgqueue.values.schedules.rule import MICROSECOND
from pgqueue.values.schedules.schedule import ScheduleRun

TICKS_AT_ONCE = 1_000
"""A look that has decided on this many ticks leaves the other schedules to the next one."""
BUSY = "busy"
BUSY_AGAIN = timedelta(seconds=5)
"""How soon a schedule is looked at again whose job waits for a transaction that holds its unique key."""
LOOKED_AT = 100
"""Schedules of one look. Their ticks take 0.1 ms each to compute, in which the worker's event loop does nothing else."""


class FiringResult(msgspec.Struct, frozen=True):
    """What a look at the due schedules did.

    Attributes:
        jobs: the ids of the jobs that it added.
        set_aside: the schedules that it set aside, and why.
        more: whether other schedules may be due, too.
    """

    jobs: Sequence[int] = []
    set_aside: Sequence[tuple[str, str]] = []
    more: bool = False


@plan(transaction=True)
def fire_due(*, limit: int = LOOKED_AT, now: datetime | None = None) -> Steps[FiringResult]:
    """Fire the ticks of schedules that are due; any number of workers may do so at once.

    Args:
        limit: look at this many schedules at most.
        now: the instant; the database's own by default.
    """
    rows = yield Statement("schedules/due", {"now": now, "limit": limit})
    if not rows:
        return FiringResult()
    looks: list[ScheduleLook] = []
    count = 0
    for row in rows:
        looks.append(_look(row))
        count += len(looks[-1].ticks)
        if count >= TICKS_AT_ONCE:
            break
    due = [tick for look in looks for tick in look.ticks]
    answers = _TickAnswers()
    if due:
        yield Statement("schedules/guard", {}, returns=False)
        answers = _answers((yield Statement("schedules/fire_due", _note_parameters(due, "tick", rows[0][0]))))
    jobs = [job_id for _, _, job_id in answers.noted if job_id is not None]
    looks = [_settle_look(look, row, answers) for look, row in zip(looks, rows, strict=False)]
    yield Statement(
        "schedules/settle",
        {
            "names": [look.name for look in looks],
            "settled": [look.settled for look in looks],
            "next_ats": [look.next_at for look in looks],
            "errors": [look.error for look in looks],
            "now": now,
        },
        returns=False,
    )
    wrong = [(look.name, look.error) for look in looks if look.error is not None]
    return FiringResult(jobs, wrong, len(rows) == limit or len(looks) < len(rows))


@plan(transaction=True)
def fire(name: str, *, now: datetime | None = None) -> Steps[int | None]:
    """Add a job of a schedule now; its next tick stays. None: a live job has its unique key.

    Raises:
        UnknownSchedule: there is none of this name.
        InvalidOption: the database refuses the job.
    """
    row = require_row(
        name, (yield Statement("schedules/lock", {"name": check_text("name", name), "now": now}))
    )
    at = _beside_ticks(row)
    answers = _TickAnswers()
    while not answers.noted:  # another manual run may have this instant
        tick = DecidedTick(name, at, row[0], FIRED)
        answers = _answers((yield Statement("schedules/fire", _note_parameters([tick], "manual", row[0]))))
        if name in answers.refused:
            raise InvalidOption(f"schedule {name!r}: the database refuses its job: {answers.refused[name]}")
        at += MICROSECOND
    return answers.noted[0][2]


@plan(transaction=True)
def backfill(
    name: str, start: datetime, end: datetime, *, now: datetime | None = None
) -> Steps[list[ScheduleRun]]:
    """Fire the ticks of a stretch of the past that have not fired, in order.

    Args:
        name: of which schedule.
        start: the first instant.
        end: the last instant, included.
        now: the instant; the database's own by default.

    Returns:
        The ticks that it fired, or that wait where ``overlap`` is ``queue``.

    Raises:
        UnknownSchedule: there is none of this name.
        InvalidOption: the stretch is not in the past, or has too many ticks; or the schedule makes no sense.
    """
    row = require_row(
        name, (yield Statement("schedules/lock", {"name": check_text("name", name), "now": now}))
    )
    clock, timing = row[0], timing_of(row[2:16])
    ticks = past(name, timing, start, end, clock)
    state = WAITING if timing.overlap == "queue" else FIRED
    noting = [DecidedTick(name, at, clock, state) for at in ticks]
    answers = _answers((yield Statement("schedules/fire", _note_parameters(noting, "backfill", clock))))
    if name in answers.refused:
        raise InvalidOption(f"schedule {name!r}: the database refuses its jobs: {answers.refused[name]}")
    if state == WAITING and answers.noted:
        yield Statement(
            "schedules/settle",
            {"names": [name], "settled": [row[16]], "next_ats": [clock], "errors": [None], "now": now},
            returns=False,
        )
    return [
        ScheduleRun(at=at, fired_at=clock, kind="backfill", state=state if job_id or state == WAITING else SKIPPED, job_id=job_id,
            job_state=None)
        for _, at, job_id in sorted(answers.noted, key=lambda one: one[1])
    ]  # fmt: skip


@plan
def runs(name: str, *, before: datetime | None = None, limit: int = 100) -> Steps[list[ScheduleRun]]:
    """The ticks of a schedule that were decided on, the latest first.

    Args:
        name: of which schedule.
        before: only those before this instant; for the next page, the last tick of the page before.
        limit: at most how many.
    """
    params = {"name": check_text("name", name), "before": before, "limit": limit}
    return [_run(row) for row in (yield Statement("schedules/runs", params))]


@plan
def last_runs(names: Sequence[str], *, limit: int = 10) -> Steps[dict[str, list[ScheduleRun]]]:
    """The last ticks of several schedules, the latest first, by the schedule's name; nothing of one without ticks.

    Args:
        names: of which schedules.
        limit: at most how many of each.
    """
    found: dict[str, list[ScheduleRun]] = {}
    for name, *run in (yield Statement("schedules/last_runs", {"names": [*names], "limit": limit})):
        found.setdefault(name, []).append(_run(run))
    return found


def _run(row: Sequence[Any]) -> ScheduleRun:
    at, fired_at, kind, state, job_id, job_state = row
    return ScheduleRun(at=at, fired_at=fired_at, kind=kind, state=state, job_id=job_id, job_state=job_state)


def _beside_ticks(row: Row) -> datetime:
    """Return the instant of a run that is no tick: now, or just after now if a tick is now."""
    now: datetime = row[0].astimezone(UTC)
    try:
        ticks = timing_of(row[2:16]).between(now, now)
    except Exception:  # noqa: BLE001 - a schedule that makes no sense has no tick
        return now
    return now + MICROSECOND if any(ticks) else now


def _look(row: Row) -> ScheduleLook:
    """Decide on one schedule's ticks; a row that makes no sense is an error, and fires none."""
    now, name = row[:2]
    settled, runs_now, waiting = row[16:19]
    try:
        return look(name, timing_of(row[2:16]), settled, now, runs_now=runs_now, waiting=waiting or ())
    except Exception as error:  # noqa: BLE001 - an error of this row must not keep the others from firing
        return ScheduleLook(name, error=f"{type(error).__name__}: {error}")


def _settle_look(look: ScheduleLook, row: Row, answers: "_TickAnswers") -> ScheduleLook:
    """Return what is to be kept of a look after the database has answered."""
    if look.name in answers.busy:
        return ScheduleLook(look.name, settled=row[16], next_at=row[0].astimezone(UTC) + BUSY_AGAIN)
    return look._replace(error=answers.refused.get(look.name, look.error))


class _TickAnswers(NamedTuple):
    """What became of ticks that were to be noted.

    Attributes:
        noted: those that were not noted before, each with its schedule and its job.
        refused: the schedules that the database refused, and why.
        busy: the schedules of which nothing was noted, since another transaction holds the unique key of the job.
    """

    noted: Sequence[tuple[str, datetime, int | None]] = ()
    refused: Mapping[str, str] = {}
    busy: Collection[str] = ()


def _note_parameters(ticks: Sequence[DecidedTick], kind: str, now: datetime) -> dict[str, Any]:
    return {
        "names": [tick.name for tick in ticks],
        "ats": [tick.at for tick in ticks],
        "run_ats": [tick.run_at for tick in ticks],
        "states": [tick.state for tick in ticks],
        "kinds": [kind] * len(ticks),
        "now": now,
    }


def _answers(rows: Sequence[Row]) -> _TickAnswers:
    return _TickAnswers(
        [(name, at, job_id) for name, at, job_id, _, refused in rows if refused is None and at is not None],
        {name: refused for name, _, _, _, refused in rows if refused is not None},
        {name for name, _, _, state, _ in rows if state == BUSY},
    )
