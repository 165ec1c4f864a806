"""The waits of made-up history follow from its workers: so what-if, asked for the same workers, finds them again."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import msgspec
import numpy as np
import pytest
from spark.lake_history import no_session

from pgqueue import PgQueue
from pgqueue.spark.demo.days import CROWD_HOUR, DEPLOY_HOUR, HOUR, MadeUpDay, Wish
from pgqueue.spark.demo.history import generate
from pgqueue.spark.demo.planned import PlannedHistory, story
from pgqueue.spark.demo.slots import DAY, START, DayCourse, course_of
from pgqueue.spark.demo.world import BUSIEST
from pgqueue.spark.lake.export import ExportOptions, export
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.whatif.settings import ReplaySettings
from pgqueue.spark.whatif.trust import TOO_SHORT
from pgqueue.spark.whatif.whatif import whatif

UNTIL = date(2026, 3, 29)
PLANNED = story(Wish(rows=100_000, days=6, until=UNTIL))
DEPLOYED = next(day for day in PLANNED.days if len(day.shifts) > 1)


def arrays(course: DayCourse) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """When each job was ready, started and ended."""
    ended, ran, waited = (np.array(one) for one in (course.ended, course.ran, course.waited))
    return ended - ran - waited, ended - ran, ended


def slots_at(day: MadeUpDay, at: int) -> int:
    return len([shift for shift in day.shifts if shift.begins <= at][-1].workers)


@pytest.mark.parametrize("day", PLANNED.days, ids=lambda day: str(day.day))
def test_no_slot_is_used_twice_and_every_job_ends_on_its_day(day: MadeUpDay) -> None:
    course = course_of(day, 1)
    ready, started, ended = arrays(course)
    assert len(course.ended) == day.rows
    assert (ready >= 0).all()
    assert (ready <= started).all()
    assert (started < ended).all()
    assert (ended < DAY).all()
    sizes = Counter(worker for shift in day.shifts for worker in shift.workers)
    for worker, slots in sizes.items():
        mine = np.array(course.worker) == worker
        instants = np.concatenate((ended[mine], started[mine]))
        steps = np.repeat([-1, 1], mine.sum())
        assert np.cumsum(steps[np.argsort(instants, kind="stable")]).max(initial=0) <= slots


def test_no_slot_is_free_while_a_job_waits() -> None:
    day = PLANNED.days[-1]
    ready, started, ended = arrays(course_of(day, 1))
    for at in np.unique(started[started - START > ready])[:2_000]:
        just_before = at - 1
        running = ((started <= just_before) & (just_before < ended)).sum()
        assert running == slots_at(day, just_before - START)


def test_at_a_deploy_the_new_workers_take_over_and_the_others_end_what_they_run() -> None:
    course = course_of(DEPLOYED, 1)
    _, started, ended = arrays(course)
    old, new = (set(shift.workers) for shift in DEPLOYED.shifts)
    assert not old & new
    for worker, begun, over in zip(course.worker, started, ended, strict=True):
        assert (worker in new) == (begun - START >= DEPLOY_HOUR * HOUR)
        record = PLANNED.workers[worker]
        midnight = datetime.combine(DEPLOYED.day, datetime.min.time(), UTC)
        assert midnight + timedelta(microseconds=int(begun)) >= record.started_at
        assert midnight + timedelta(microseconds=int(over)) <= record.ended_at


@pytest.mark.parametrize("rows", [30_000, 200_000, 1_000_000])
def test_a_crowd_has_others_of_its_queue_wait_at_any_size_of_the_history(rows: int) -> None:
    planned = story(Wish(rows=rows, days=30, until=UNTIL))
    waits = {}
    for day in (planned.days[-2], planned.days[-3]):
        course = np.array(course_of(day, 1).waited) / 1e6
        others = np.concatenate(
            [
                (np.arange(cell.rows) >= cell.crowd) & (cell.queue == BUSIEST) & (cell.hour == CROWD_HOUR)
                for cell in day.cells
            ]
        )
        waits[day.day] = course[others].mean()
    assert waits[planned.events.crowd] > 10
    assert waits[planned.events.storm] < 1


def test_what_would_end_after_midnight_ends_at_midnight() -> None:
    day = PLANNED.days[-1]
    last = msgspec.structs.replace(day.cells[-1], hour=23, first=0, rows=50, run=500.0)
    ready, started, ended = arrays(course_of(replace(day, cells=[last]), 1))
    assert (ended <= DAY - 1).all()
    assert (ended == DAY - 1).sum() > 10
    assert (ready <= started).all()
    assert (started < ended).all()


def test_the_same_day_is_run_alike_and_another_seed_otherwise() -> None:
    day = PLANNED.days[0]
    assert course_of(day, 1) == course_of(day, 1)
    assert course_of(day, 1) != course_of(day, 2)


@pytest.mark.parametrize(("rows", "days"), [(1, 1), (2, 3), (50, 1)])
def test_a_history_of_few_jobs_is_run_too(rows: int, days: int) -> None:
    planned: PlannedHistory = story(Wish(rows=rows, days=days, until=UNTIL))
    assert sum(len(course_of(day, 1).ended) for day in planned.days if day.rows) == rows


def test_what_if_finds_the_waits_of_a_made_up_history_again_and_fewer_slots_make_them_longer(
    queue: PgQueue, tmp_path: Path
) -> None:
    generate(queue.database, Wish(rows=40_000, days=4, until=UNTIL))
    lake = Lake(tmp_path / "lake")
    export(no_session, queue.database, lake, options=ExportOptions())
    days = [one.day for one in lake.days()]
    assert len(days) == 4
    workers = len(PLANNED.days[0].shifts[0].workers) // 2
    same = whatif(lake, days[:1], ReplaySettings(workers=2, concurrency=workers))
    assert same.check is not None
    assert same.doubts == {"p50": TOO_SHORT}
    assert all(off is not None and off < 0.1 for off in same.check.off.values())
    assert same.was.p99 > 1
    fewer = whatif(lake, days[:1], ReplaySettings(workers=1, concurrency=1))
    more = whatif(lake, days[:1], ReplaySettings(workers=2, concurrency=20))
    assert fewer.would_be.p99 > 2 * same.was.p99
    assert more.would_be.p99 < 0.5 * same.was.p99
