"""When jobs ran, by hour, queue, task and worker; and how busy each worker was.

A job counts in the hour in which it ended. Its last attempt may have begun hours before, or on the day before. So the
part of the attempt in each hour is computed once and kept with the day on which the job ended (the lake's table
``rollup/busy``). From there it is added to that hour's figures, also when the hour's day was rolled up long ago. The run
times of earlier attempts are not recorded, and are in no figure.
"""

from datetime import timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from pgqueue.spark.rollup.jobs import HOUR, KEYS, MICROSECONDS, day_of, hour_of, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from pyspark.sql import Column, DataFrame

LONGEST_RUN = timedelta(days=31)
"""Of a longer attempt only this much counts: each hour is a row, and a clock may have been wrong."""


def parts(jobs: "DataFrame") -> "DataFrame":
    """The hours in which last attempts ran.

    Args:
        jobs: in the shape ``ended``.

    Returns:
        For each ``day`` on which jobs ended, and each ``hour``, ``queue``, ``task`` and ``worker_id``, the ``busy``
        microseconds.
    """
    longest = F.expr(f"interval {LONGEST_RUN.days} day")
    ran = jobs.where(F.col("started_at") < F.col("ended_at")).withColumn(
        "since", F.greatest("started_at", F.col("ended_at") - longest)
    )
    hours = F.sequence(hour_of("since"), hour_of("ended_at"), F.expr("interval 1 hour"))
    by_hour = ran.select(
        "day", F.explode(hours).alias("hour"), "queue", "task", "worker_id", "since", "ended_at"
    )
    return (
        by_hour.withColumn("busy", _overlap(F.col("since"), F.col("ended_at")))
        .where(F.col("busy") > 0)
        .groupBy("day", "hour", "queue", "task", "worker_id")
        .agg(F.sum("busy").alias("busy"))
    )


def reaching(found: "DataFrame") -> "DataFrame":
    """How many days each ``day`` ``reaches`` back: the days before it in which its jobs ran.

    Args:
        found: as :func:`parts` returns them.
    """
    back = F.date_diff("day", F.min(day_of(F.col("hour"))))
    return found.groupBy("day").agg(back.alias("reaches"))


def of_jobs(found: "DataFrame", days: "Sequence[date]") -> "DataFrame":
    """How busy the hours of some days were, by queue and task.

    Args:
        found: as :func:`parts` returns them, of these days and of all days that reach back to them.
        days: the days to return.
    """
    return _of(found, days).groupBy(*KEYS).agg(seconds(F.sum("busy")).alias("busy_seconds"))


def of_workers(found: "DataFrame", days: "Sequence[date]", workers: "DataFrame") -> "DataFrame":
    """How busy each worker was in the hours of some days.

    Args:
        found: as for :func:`of_jobs`.
        days: the days to return.
        workers: all workers that ever ran, in the shape ``workers``.
    """
    busy = (
        _of(found, days)
        .where(F.col("worker_id").isNotNull())
        .groupBy("day", "hour", "worker_id")
        .agg(seconds(F.sum("busy")).alias("busy_seconds"))
    )
    joined = _alive(workers, days).join(busy, ["day", "hour", "worker_id"], "full_outer")
    slots = F.col("concurrency") * F.col("alive_seconds")
    busy_seconds = F.coalesce("busy_seconds", F.lit(0.0))
    return joined.select(
        *("day", "hour", "worker_id", "host", "concurrency", "alive_seconds"),
        busy_seconds.alias("busy_seconds"),
        F.when(slots > 0, busy_seconds / slots).alias("utilisation"),
    )


def _of(found: "DataFrame", days: "Sequence[date]") -> "DataFrame":
    """Parts by the day of their hour, not by the day on which their jobs ended."""
    lying = found.withColumn("day", day_of(F.col("hour")))
    return lying.where(F.col("day").isin(list(days)))


def _alive(workers: "DataFrame", days: "Sequence[date]") -> "DataFrame":
    """The hours of some days in which each worker was alive; a worker that still runs counts to the end."""
    every_hour = F.transform(
        F.sequence(F.lit(0), F.lit(23)),
        lambda hour: F.timestamp_micros(F.unix_date("day") * (24 * HOUR) + hour * HOUR),
    )
    each_day = F.explode(F.array(*map(F.lit, days))).alias("day")
    by_hour = workers.select("*", each_day).select("*", F.explode(every_hour).alias("hour"))
    until = F.coalesce("ended_at", _end_of_hour())
    lived = by_hour.withColumn("alive", _overlap(F.col("started_at"), until)).where(F.col("alive") > 0)
    return lived.select(
        "day",
        "hour",
        F.col("id").alias("worker_id"),
        "host",
        "concurrency",
        (F.col("alive") / MICROSECONDS).alias("alive_seconds"),
    )


def _overlap(since: "Column", until: "Column") -> "Column":
    """How many microseconds between two instants lie in the row's hour; below zero: none."""
    last = F.least(F.unix_micros(until), F.unix_micros(_end_of_hour()))
    return last - F.greatest(F.unix_micros(since), F.unix_micros("hour"))


def _end_of_hour() -> "Column":
    return F.timestamp_micros(F.unix_micros("hour") + HOUR)
