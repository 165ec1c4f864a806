"""The recorded jobs of some days of a lake, and the same jobs as a replay takes them: in claim order, with their limits.

DuckDB reads the lake's files through Arrow, and only the columns that a replay needs. Of a job that was run again the lake has
one attempt, the last: when it was ready, when it started, when it ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeAlias

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pgqueue.errors import InvalidOption, LakeError
from pgqueue.spark.lake.columns import ENDED, ENDED_TABLE
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.whatif.settings import QUEUE, TASK, MovedTask, ReplayLimit, ReplaySettings
from pgqueue.values.hints import did_you_mean

Numbers: TypeAlias = NDArray[np.int64]
SECOND = 1_000_000
DAY = 86_400 * SECOND
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NONE = -1
"""In place of a key or a lane: the job has none."""
NEEDED = """
    select id, queue, task, -priority as place, epoch_us(run_at) as run_at, epoch_us(created_at) as created_at,
           epoch_us(started_at) as started_at, epoch_us(ended_at) as ended_at, greatest(attempts - 1, 0) as earlier{values}
    from ended where started_at is not null"""
VALUE = "case when json_valid(args) then json_extract(args, ?)::varchar end"
"""A value of an argument as JSON, so that 7 and "7" are two keys; null: the job has no such argument."""


@dataclass(frozen=True, kw_only=True)
class EndedJobs:
    """Ended jobs that were started. Times are in microseconds since 1970.

    Attributes:
        ids: their ids.
        places: their priorities, negated.
        run_at: the earliest time to run.
        ready: since when they waited for a worker: from ``run_at`` on, or from when they were enqueued, if that is later.
        was_ready: the same as recorded, where ``ready`` is moved.
        started: the start of the last attempt.
        replayed: the start of that attempt in a replay of the settings that the jobs had; as recorded, where there is none.
        ended: its end.
        queue: the place of their queue in ``queues``.
        task: the place of their task in ``tasks``.
        earlier: how many attempts they had before the last one.
        queues: the names of queues.
        tasks: the names of tasks.
        keys: for each limit its jobs' keys, counted from 0; NONE: the limit does not concern the job.
        never_started: how many jobs of these days were never started; they are not among these.
        not_served: how many are not among these because no worker serves their queue.
    """

    ids: Numbers
    places: Numbers
    run_at: Numbers
    ready: Numbers
    was_ready: Numbers
    started: Numbers
    replayed: Numbers
    ended: Numbers
    queue: Numbers
    task: Numbers
    earlier: Numbers
    queues: Sequence[str]
    tasks: Sequence[str]
    keys: tuple[Numbers, ...] = ()
    never_started: int = 0
    not_served: int = 0

    def picked(self, chosen: NDArray[np.bool_] | Numbers) -> "EndedJobs":
        """Some of these jobs, or all in another order."""
        arrays: dict[str, Any] = {
            name: value[chosen] for name, value in vars(self).items() if isinstance(value, np.ndarray)
        }
        return replace(self, **arrays, keys=tuple(one[chosen] for one in self.keys))


def read(lake: Lake, days: Sequence[date], settings: ReplaySettings) -> EndedJobs:
    """The jobs that ended on these days.

    Raises:
        InvalidOption: the lake does not have these days, or no job of them has what a limit or a schedule names.
        LakeError: there is no lake, or a file cannot be read.
    """
    _check_days(lake, days)
    by = [_argument(one) for one in settings.in_force]
    paths = [f'$."{name}"' for name in by if name is not None]
    values = "".join(f", {VALUE} as value_{place}" for place in range(len(paths)))
    try:
        ended = lake.dataset(ENDED, ENDED_TABLE, days)
        with duckdb.connect() as engine:
            engine.execute("set timezone = 'UTC'")
            engine.register("ended", ended)
            rows: pa.Table = engine.sql(NEEDED.format(values=values), params=paths).to_arrow_table()
        count = ended.count_rows()
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise LakeError(f"{lake.uri} cannot be read: {' '.join(str(error).split())}") from error
    if not rows.num_rows:
        raise InvalidOption(f"days: no job that was started ended on {_span(days)}")
    return _ended_jobs(rows, count - rows.num_rows, settings)


def _check_days(lake: Lake, days: Sequence[date]) -> None:
    known = [one.day for one in lake.days()]
    if not known:
        raise InvalidOption(f"days: {lake.uri} has no days yet: run `pgqueue pipeline export` first")
    for day in days:
        # A day between them without a record is one on which no job ended.
        if not known[0] <= day <= known[-1]:
            raise InvalidOption(f"days: {day} is not in the lake, which has {known[0]} to {known[-1]}")


def _argument(limit: ReplayLimit) -> str | None:
    """Return the argument that a limit is by; None: it is by none."""
    if limit.name.startswith(QUEUE):
        return None
    if limit.name.startswith(TASK):
        task, _, argument = limit.name.removeprefix(TASK).rpartition(":")
        return argument if task else None
    return limit.name


def _ended_jobs(rows: pa.Table, never_started: int, settings: ReplaySettings) -> EndedJobs:
    queue, queues = _encode_texts(rows["queue"])
    task, tasks = _encode_texts(rows["task"])
    started, run_at = _numbers(rows, "started_at"), _numbers(rows, "run_at")
    # A database's clock that was set back leaves jobs that started before they were ready: they did not wait.
    ready = np.minimum(np.maximum(run_at, _numbers(rows, "created_at")), started)
    found = EndedJobs(
        ids=_numbers(rows, "id"),
        places=_numbers(rows, "place"),
        run_at=run_at,
        ready=ready,
        was_ready=ready,
        started=started,
        replayed=started,
        ended=np.maximum(_numbers(rows, "ended_at"), started),
        queue=queue,
        task=task,
        queues=queues,
        tasks=tasks,
        earlier=_numbers(rows, "earlier"),
        never_started=never_started,
    )
    values = iter([rows[name] for name in rows.column_names if name.startswith("value_")])
    keys = tuple(
        _keys(found, limit, next(values) if _argument(limit) is not None else None)
        for limit in settings.in_force
    )
    return replace(found, keys=keys)


def _keys(jobs: EndedJobs, limit: ReplayLimit, values: pa.ChunkedArray | None) -> Numbers:
    """The keys of a limit: one for each value of its argument, or one for all jobs that it concerns."""
    found = np.zeros(jobs.ids.size, np.int64) if values is None else _encode_texts(values)[0]
    if limit.name.startswith(QUEUE):
        concerned = jobs.queue == _place(limit, limit.name.removeprefix(QUEUE), jobs.queues, "queue")
    elif limit.name.startswith(TASK):
        name = limit.name.removeprefix(TASK)
        task = name if values is None else name.rpartition(":")[0]
        concerned = jobs.task == _place(limit, task, jobs.tasks, "task")
    else:
        concerned = np.ones(jobs.ids.size, np.bool_)
    keys = np.where(concerned, found, NONE)
    if not (keys != NONE).any():
        raise InvalidOption(
            f"limit {limit.said}: no job of these days has this argument; name one of args, not a column"
        )
    return keys


def _place(setting: ReplayLimit | MovedTask, name: str, known: Sequence[str], what: str) -> int:
    if name not in known:
        raise InvalidOption(
            f"{setting.said}: no job of these days has the {what} {name!r}{did_you_mean(name, known)}"
        )
    return [*known].index(name)


def _numbers(rows: pa.Table, name: str) -> Numbers:
    found: Numbers = rows[name].cast(pa.int64()).to_numpy()
    return found


def _encode_texts(values: pa.ChunkedArray) -> tuple[Numbers, list[str]]:
    """Return texts as numbers, and the texts; a null is NONE."""
    coded = pc.dictionary_encode(values).combine_chunks()
    if isinstance(coded, pa.ChunkedArray):  # of no chunk, or of one in older releases
        coded = coded.chunk(0)
    numbers: Numbers = pc.fill_null(coded.indices, NONE).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers, coded.dictionary.to_pylist()


def served_jobs(jobs: EndedJobs, settings: ReplaySettings) -> EndedJobs:
    """The jobs of the queues that the workers serve.

    Raises:
        InvalidOption: they serve none of these queues.
    """
    weights = np.array([settings.serving.weight(name) for name in jobs.queues])
    chosen = weights[jobs.queue] > 0
    if not chosen.any():
        raise InvalidOption(
            f"queues: no job of these days is of {', '.join(settings.serving.entries or ())}; the queues are "
            f"{', '.join(sorted(jobs.queues)[:10])}"
        )
    left_out = int(chosen.size - chosen.sum())
    return replace(jobs.picked(chosen), not_served=left_out) if left_out else jobs


def move_jobs(jobs: EndedJobs, days: Sequence[date], moves: Sequence[MovedTask]) -> EndedJobs:
    """The jobs with other times: those of a task that were ready on a day are dealt out evenly to the day's ticks, in their order.

    Jobs that were ready before these days keep their times.

    Raises:
        InvalidOption: no job has the task, or a day on which it had jobs has no tick.
    """
    run_at, ready = jobs.run_at.copy(), jobs.ready.copy()
    for move in moves:
        of_task = jobs.task == _place(move, move.task, jobs.tasks, "task")
        for day in days:
            begin = start_of(day)
            chosen = np.flatnonzero(of_task & (jobs.ready >= begin) & (jobs.ready < begin + DAY))
            if not chosen.size:
                continue
            ticks = _ticks(move, begin)
            if not ticks.size:
                raise InvalidOption(
                    f"schedule {move.said}: there is no tick on {day}, on which {chosen.size:,} of its jobs were ready"
                )
            chosen = chosen[np.lexsort((jobs.ids[chosen], jobs.ready[chosen]))]
            run_at[chosen] = ready[chosen] = ticks[np.arange(chosen.size) * ticks.size // chosen.size]
    return replace(jobs, run_at=run_at, ready=ready)


def _ticks(move: MovedTask, begin: int) -> Numbers:
    since = EPOCH + timedelta(microseconds=begin)
    found = []
    for tick in move.cron.after(since - timedelta(microseconds=1)):
        if tick.at >= since + timedelta(days=1):
            break
        found.append((tick.at - EPOCH) // timedelta(microseconds=1))
    return np.array(found, np.int64)


def start_of(day: date) -> int:
    """The first microsecond of a day."""
    return (datetime.combine(day, datetime.min.time(), UTC) - EPOCH) // timedelta(microseconds=1)


def in_claim_order(jobs: EndedJobs) -> EndedJobs:
    """The jobs in the order in which a queue gives them to workers: by priority, then ``run_at``, then id."""
    return jobs.picked(np.lexsort((jobs.ids, jobs.run_at, jobs.places)))


def _span(days: Sequence[date]) -> str:
    return str(days[0]) if len(days) == 1 else f"{days[0]} to {days[-1]}"
