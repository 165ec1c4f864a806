"""What the report's questions read: hours in order, and without those in which no job ended; sketches of a span."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.report.rollups import DAY, Period, Rollups, opened, period
from pgqueue.spark.rollup.in_duckdb import make_sketches
from pgqueue.spark.rollup.tables import SCHEMAS
from pgqueue.store.pipeline.lake import Origin

FIRST = date(2026, 1, 5)
DAYS = [FIRST + timedelta(days=number) for number in range(3)]
AT = (FIRST - date(1970, 1, 1)).days * DAY
"""The first hour."""


def hour(number: int, jobs: int, **more: Any) -> dict[str, Any]:
    """An hour of a task; its jobs ran for as many seconds as is the hour's number."""
    at = datetime.fromtimestamp(number * 3_600, UTC)
    runs = make_sketches(pa.chunked_array([[[float(number)] * jobs or None]], pa.list_(pa.float64())))
    return {
        **dict.fromkeys(SCHEMAS["hours"].names),
        "day": at.date(),
        "hour": at,
        "queue": "mail",
        "task": "send",
        "jobs": jobs,
        "attempts": jobs,
        "retries": 0,
        "dead": 0,
        "busy_seconds": 60.0,
        "run_sketch": runs[0].as_py(),
        **more,
    }


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Three days of roll-ups in no order; in each third hour no job ended, though one ran."""
    made = Lake(tmp_path)
    made.create(Origin("1", 2, "pgqueue"))
    rows = [hour(AT + number, 0 if number % 3 == 0 else number) for number in reversed(range(3 * DAY))]
    made.replace_days("rollup/hours", DAYS, pa.Table.from_pylist(rows, SCHEMAS["hours"]))
    return made


@pytest.fixture
def rollups(lake: Lake) -> Iterator[Rollups]:
    found = period(lake, None, 1)
    assert isinstance(found, Period)
    with opened(lake, found) as read:
        yield read


def test_the_hours_of_a_task_are_in_order_and_only_those_in_which_jobs_ended(rollups: Rollups) -> None:
    ((keys, values),) = rollups.groups("task_hours")
    assert keys == ("mail", "send")
    ended = [number for number in range(3 * DAY) if number % 3]
    assert values["hour"].tolist() == [AT + number for number in ended]
    assert values["jobs"].tolist() == ended


def test_the_load_counts_hours_in_which_no_job_ended(rollups: Rollups) -> None:
    loads = {row.day: row.busy for row in rollups.rows("loads", {"fewest_slots": 1})}
    assert loads == {AT // DAY + number: 60.0 * DAY for number in range(3)}


@pytest.mark.parametrize(
    ("first", "beyond"), [(0, 72), (1, 2), (23, 26), (24, 48), (70, 90), (-9, 2), (3, 4)]
)
def test_the_sketches_of_a_span_are_those_of_its_hours(rollups: Rollups, first: int, beyond: int) -> None:
    within = [number for number in range(max(0, first), min(72, beyond)) if number % 3]
    merged = rollups.merged("run_sketch", ("queue", "task"), AT + first, AT + beyond)
    if not within:
        assert merged == {}
        return
    sketch = merged["mail", "send"]
    assert sketch.n == sum(within)
    assert (sketch.get_min_value(), sketch.get_max_value()) == (AT + within[0], AT + within[-1])


def test_no_zone_of_the_process_shifts_an_hour(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, rollups: Rollups
) -> None:
    here = [values["hour"].tolist() for _, values in rollups.groups("task_hours")]
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    found = period(lake, None, 1)
    assert found is not None
    with opened(lake, found) as read:
        assert [values["hour"].tolist() for _, values in read.groups("task_hours")] == here
