"""Why attempts failed: the messages of all failed attempts, grouped where only numbers and names differ.

A job keeps an object for each failed attempt (``errors``), also when it succeeded later. The attempt counts in the hour
in which its job ended, because only then does the job come to the lake.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from pgqueue.spark.rollup.jobs import day_of
from pgqueue.values.verdict import NOT_KEPT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

READ = 2_000
"""Characters of a message that are read."""
LONGEST_REASON = 200
LONGEST_SAMPLE = 500
LONGEST_TYPE = 100
UNREADABLE = "unreadable"
"""The type that is shown for errors that are not in pgqueue's form."""
SHAPE = "array<struct<attempt:int,at:string,type:string,message:string>>"
LETTER = r"\p{L}\p{N}_"
VARYING = (
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?Z\b| ?[+-]\d\d(?::?\d\d)?\b)?", "<time>"),
    (r"(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uuid>"),
    (rf"(?<![{LETTER}.+-])[{LETTER}.+-]++@[{LETTER}-]+(?:\.[{LETTER}-]+)+", "<email>"),
    (rf"(?<![{LETTER}])'[^']*'(?![{LETTER}])|\"[^\"]*\"|`[^`]*`|“[^”]*”|«[^»]*»", "<text>"),
    (r"(?i)\b[a-z][a-z0-9+]*://[^\s<>,;)\]]+", "<url>"),
    (rf"(?<![{LETTER}<>/])(?:[A-Za-z]:\\|~?/)[^\s:,;()\[\]<>]+", "<path>"),
    (r"(?i)\b0x[0-9a-f]+\b|\b(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{8,}\b", "<hex>"),
    (r"\d+(?:[.,:]\d+)*", "<n>"),
    (r"\s+", " "),
)
"""Patterns of what varies between messages, and their replacements, applied in this order."""


def failures(jobs: "DataFrame") -> "DataFrame":
    """Failed attempts by hour, queue, task, type of error and reason.

    Args:
        jobs: ended jobs with their ``hour``, in the shape ``ended``.
    """
    listed = jobs.select("day", "hour", "queue", "task", "outcome", _attempts().alias("attempts"))
    of_this_life = listed.withColumn("attempts", _since_buried())
    reasons = of_this_life.withColumn("reasons", F.transform("attempts", _in_short))
    keys = F.transform("reasons", lambda one: F.struct(one["error_type"], one["reason"]))
    each = reasons.withColumn("keys", keys).select("*", F.posexplode("reasons").alias("place", "one"))
    key = F.struct(F.col("one")["error_type"], F.col("one")["reason"])
    is_last = F.col("place") == F.size("reasons") - 1
    return (
        each.withColumn("is_first", F.array_position("keys", key) == F.col("place") + 1)
        .withColumn("is_fatal", is_last & (F.col("outcome") == "dead"))
        .select("day", "hour", "queue", "task", "one.*", "is_first", "is_fatal")
        .groupBy("day", "hour", "queue", "task", "error_type", "reason")
        .agg(
            F.count("*").alias("failures"),
            F.count_if("is_first").alias("jobs"),
            F.count_if("is_fatal").alias("dead"),
            F.min("at").alias("first_at"),
            F.max("at").alias("last_at"),
            F.min("sample").alias("sample"),
        )
    )


def reason_of(message: "Column") -> "Column":
    """A message with its varying parts replaced, so that failures of one kind have one reason.

    Args:
        message: the original message; only its first :data:`READ` characters are used.
    """
    short = F.substring(message, 1, READ)
    for pattern, word in VARYING:
        short = F.regexp_replace(short, pattern, word)
    return F.substring(F.trim(short), 1, LONGEST_REASON)


def _attempts() -> "Column":
    """The failed attempts of a job; if they cannot be read, one of type :data:`UNREADABLE`."""
    read = F.filter(F.from_json("errors", SHAPE), lambda one: one.isNotNull() & ~_is_note(one))
    nothing = F.lit(None)
    unreadable = F.array(
        F.struct(
            nothing.cast("int").alias("attempt"),
            nothing.cast("string").alias("at"),
            F.lit(UNREADABLE).alias("type"),
            F.col("errors").alias("message"),
        )
    )
    return F.when(F.coalesce(F.trim("errors"), F.lit("null")) != "null", F.coalesce(read, unreadable))


def _is_note(error: "Column") -> "Column":
    """Whether it only says why a succeeded job's result is not kept; see :func:`pgqueue.values.verdict.why_not_kept`."""
    of_last = (F.col("outcome") == "succeeded") & error["attempt"].eqNullSafe(F.col("attempts"))
    return of_last & error["type"].eqNullSafe(F.lit(NOT_KEPT))


def _since_buried() -> "Column":
    """The attempts without those that an earlier record of the job has.

    A dead job that is revived starts again at attempt 1, and keeps its errors. If it had died on an earlier day, the lake
    has another record of it for that day.
    """
    attempts = F.col("attempts")

    def begins_again(place: "Column") -> "Column":
        this, former = F.element_at(attempts, place), F.element_at(attempts, place - 1)
        died = day_of(F.try_to_timestamp(former["at"]))
        return (this["attempt"] <= former["attempt"]) & (died < F.col("day"))

    again = F.filter(F.sequence(F.lit(2), F.size(attempts)), begins_again)
    first = F.when(F.size(attempts) > 1, F.coalesce(F.array_max(again), F.lit(1))).otherwise(1)
    return F.slice(attempts, first, F.size(attempts))


def _in_short(attempt: "Column") -> "Column":
    message = F.coalesce(attempt["message"], F.lit(""))
    kind = F.coalesce(attempt["type"], F.lit(""))
    return F.struct(
        F.substring(kind, 1, LONGEST_TYPE).alias("error_type"),
        reason_of(message).alias("reason"),
        F.try_to_timestamp(attempt["at"]).alias("at"),
        F.substring(message, 1, LONGEST_SAMPLE).alias("sample"),
    )
