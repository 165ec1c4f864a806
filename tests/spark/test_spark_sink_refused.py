"""Rows, columns and options that cannot be jobs: each is named, before anything is enqueued."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from ciphers import Secret
from looking import ask
from pyspark.sql import types
from pyspark.sql.types import DataType, StructType
from spark.sinking import attempts, batch, columns, orders, staged, staged_rows, writing, written

from pgqueue import JobPart
from pgqueue.errors import (
    ConfigurationError,
    ConnectionFailed,
    InvalidOption,
    RowsRefused,
    SchemaMissing,
    UnknownTask,
)
from pgqueue.spark.apps import find_app
from pgqueue.spark.writing.log import writes
from pgqueue.spark.writing.rows import Rows
from pgqueue.spark.writing.target import decide, read_options
from pgqueue.spark.writing.writer import stream_writer, writer

SHOP = """
from datetime import datetime
from pgqueue import Context, PgQueue, Unique
queue = PgQueue(queues=["mail", "bulk"])

@queue.task(name="receipt", queue="mail", priority=7, max_attempts=3, unique=Unique(until="started"))
def receipt(ctx: Context, order_id: int, *, total: float = 0.0, note: str | None = None) -> None: ...

@queue.task(name="any", queue="mail")
def anything(**fields: object) -> None: ...

@queue.task(name="route", queue="mail")
def route(queue: str) -> None: ...

@queue.task(name="place", queue="mail")
def place(x: int, /) -> None: ...

not_a_queue = 1
"""
NOWHERE = "postgresql:///nothing?host=/nowhere"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"shop_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(SHOP)
    monkeypatch.syspath_prepend(tmp_path)
    return f"{name}:queue"


def _refusals(
    kind: DataType, values: Sequence[Any], arrow: pa.DataType | None = None, **options: str
) -> list[str]:
    """What is said of rows with one column, ``x``."""
    target = decide(read_options({"task": "receipt", "dsn": NOWHERE, **options}), StructType().add("x", kind))
    rows = Rows(target, 3)
    staged = list(rows.jobs(pa.RecordBatch.from_pydict({"x": pa.array(values, type=arrow)})))
    assert len(staged) + rows.refused == rows.rows == len(values)
    return [str(refusal) for refusal in rows.refusals]


@pytest.mark.parametrize(
    ("kind", "values", "arrow", "said"),
    [
        (types.DoubleType(), [1.0, float("nan")], None, "row 2 of partition 3: column 'x': nan has no JSON form"),
        (types.FloatType(), [None, float("-inf")], pa.float32(), "column 'x': -inf has no JSON form"),
        (types.ArrayType(types.DoubleType()), [[1.0], [float("inf")]], None, "column 'x': inf has no JSON form"),
        (types.StringType(), ["a", "b\0c"], None, "column 'x': a string holds NUL"),
        (types.ArrayType(types.StringType()), [["a"], ["\0"]], None, "column 'x': a string holds NUL"),
        (types.StringType(), ["a", "b" * (1 << 20)], None, "the arguments take 1,048,584 bytes as JSON, over the limit"),
        (types.TimestampType(), [None, 1 << 60], pa.timestamp("us", "UTC"), "column 'x': "),
    ],
    ids=["nan", "infinity", "nested", "NUL", "nested NUL", "too large", "year 36,000"],
)  # fmt: skip
def test_a_value_that_json_or_postgresql_cannot_hold_is_refused_by_row_and_column(
    kind: DataType, values: Sequence[Any], arrow: pa.DataType | None, said: str
) -> None:
    (refusal,) = _refusals(kind, values, arrow)

    assert "row 2 of partition 3" in refusal
    assert said in refusal
    assert len(refusal) < 600


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "column 'x': None is not a JSON object"),
        ("[1]", "column 'x': '[1]' is not a JSON object"),
        ("{", "column 'x': '{' is not JSON"),
        ('{"a": "\\u0000"}', "column 'x': a string holds NUL"),
        ('{"a": "\\ud800"}', "column 'x': "),
    ],
)
def test_a_column_of_all_arguments_that_is_no_object_is_refused(value: str | None, said: str) -> None:
    (refusal,) = _refusals(types.StringType(), [value], pa.string(), args="x")

    assert said in refusal


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"priority": 101}, "priority=101: use a whole number from -100 to 100"),
        ({"max_attempts": 0}, "max_attempts=0: use a whole number from 1"),
        ({"queue": "a b"}, "queue='a b': a name has no white space"),
        ({"queue": ""}, "queue='': a name has 1 to 200 characters"),
        ({"unique_key": ""}, "unique_key='': use a string of 1 to 1000 characters"),
        ({"unique_key": "k" * 1001}, "use a string of 1 to 1000 characters"),
        ({"unique_key": "\0"}, "column 'unique_key': a string holds NUL"),
    ],
)
def test_what_a_row_says_of_its_job_is_held_to_the_same_ranges_as_an_enqueue(
    row: dict[str, Any], said: str
) -> None:
    rows = Rows(decide(read_options({"task": "bill", "dsn": NOWHERE}), columns("order_id", *row)), 0)

    assert list(rows.jobs(batch(order_id=[7], **{name: [value] for name, value in row.items()}))) == []
    (refusal,) = map(str, rows.refusals)
    assert said in refusal
    assert "order_id=7" in refusal or "unique_key" in refusal


def test_a_task_that_is_known_checks_arguments_itself(shop: str) -> None:
    kinds = StructType().add("order_id", types.StringType()).add("note", types.StringType())
    rows = Rows(decide(read_options({"task": "receipt", "dsn": NOWHERE, "app": shop}), kinds), 0)
    two = pa.RecordBatch.from_pydict({"order_id": ["7", None], "note": [None, "x"]})

    assert list(rows.jobs(two)) == []
    first, second = map(str, rows.refusals)
    assert "Expected `int`, got `str` - at `order_id`" in first
    assert "Expected `int`, got `null` - at `order_id`" in second


def test_null_is_for_arguments_that_may_be_none_and_for_options_that_have_a_default(shop: str) -> None:
    kinds = columns("order_id", "queue", "priority", "unique_key").add("note", types.StringType())
    target = decide(read_options({"task": "receipt", "dsn": NOWHERE, "app": shop}), kinds)
    row = batch(order_id=[7], queue=[None], priority=[None], unique_key=[None], note=pa.nulls(1, pa.string()))

    (job,) = Rows(target, 0).jobs(row)

    assert (job.queue, job.priority, job.max_attempts, job.unique_key) == ("mail", 7, 3, None)
    assert job.args == b'{"order_id":7}'
    assert target.defaults.unique.until == "started"


def test_rows_are_encoded_by_the_codec_of_the_app(shop: str) -> None:
    codec = find_app(shop).codec = Secret("k1")
    target = decide(
        read_options({"task": "receipt", "dsn": NOWHERE, "app": shop}), columns("order_id", "unique_key")
    )

    (job,) = Rows(target, 0).jobs(batch(order_id=[4711], unique_key=["once"]))

    assert b"4711" not in job.args
    assert job.unique_key == codec.key("once")
    assert codec.decode(json.loads(job.args)["$encoded"], JobPart("args", "receipt")) == b'{"order_id":4711}'


def test_a_queue_that_the_app_did_not_declare_is_refused(shop: str) -> None:
    target = decide(
        read_options({"task": "receipt", "dsn": NOWHERE, "app": shop}), columns("order_id", "queue")
    )
    rows = Rows(target, 0)

    list(rows.jobs(batch(order_id=[1, 2], queue=["bulk", "blk"])))

    assert rows.staged == 1
    assert "queue 'blk' is not one of those declared" in str(rows.refusals[0])


@pytest.mark.parametrize(
    ("task", "kinds", "options", "said"),
    [
        ("receipt", ["order"], {}, "column 'order': the task receipt takes no argument of this name; did you mean 'order_id'"),
        ("receipt", ["total"], {}, "needs an argument 'order_id', and there is no column"),
        ("route", ["queue"], {}, "has an argument 'queue', which as a column says how a job is queued"),
        ("receipt", ["order_id", "Priority"], {}, "column 'Priority': write it 'priority'"),
        ("receipt", ["order_id", "order_id"], {}, "column 'order_id' is there 2 times"),
        ("receipt", ["order_id"], {"args": "order"}, "args='order': there is no such column; did you mean 'order_id'"),
        ("receipt", ["order_id"], {"args": "order_id"}, "column 'order_id' is of type bigint; a column of all"),
        ("receipt", [], {}, "the DataFrame has no columns"),
    ],
)  # fmt: skip
def test_columns_that_do_not_fit_the_task_are_refused_before_any_row_is_read(
    shop: str, task: str, kinds: list[str], options: dict[str, str], said: str
) -> None:
    made = StructType()
    for name in kinds:
        made.add(name, types.StringType() if name == "queue" else types.LongType())

    with pytest.raises(RowsRefused) as refused:
        decide(read_options({"task": task, "dsn": NOWHERE, "app": shop, **options}), made)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("x", types.CalendarIntervalType(), "column 'x' is of type interval"),
        ("x", types.YearMonthIntervalType(), "column 'x' is of type interval year to month"),
        ("x", types.VariantType(), "column 'x' is of type variant"),
        ("x", types.MapType(types.DoubleType(), types.StringType()), "column 'x' has keys of type double"),
        ("x", types.ArrayType(types.VariantType()), "column 'x[]' is of type variant"),
        ("x", StructType().add("y", types.VariantType()), "column 'x.y' is of type variant"),
        ("x", StructType().add("y", "integer").add("y", "integer"), "column 'x' has two fields of one name"),
        ("priority", types.StringType(), "column 'priority' is of type string; it has to be a whole number"),
        ("run_at", types.TimestampNTZType(), "column 'run_at' is of type timestamp_ntz; it has to be a timestamp with"),
        ("unique_key", types.LongType(), "column 'unique_key' is of type bigint; it has to be a string"),
    ],
    ids=str,
)  # fmt: skip
def test_columns_of_a_type_that_no_job_can_hold_are_refused_before_any_row_is_read(
    name: str, kind: DataType, said: str
) -> None:
    with pytest.raises(RowsRefused) as refused:
        decide(read_options({"task": "bill", "dsn": NOWHERE}), StructType().add(name, kind))
    assert said in str(refused.value)


def test_beside_a_column_of_all_arguments_there_is_no_place_for_others() -> None:
    made = StructType().add("a", StructType()).add("b", "string").add("queue", "string")

    with pytest.raises(RowsRefused, match="column 'b': 'a' holds all arguments"):
        decide(read_options({"task": "bill", "dsn": NOWHERE, "args": "a"}), made)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"task": ""}, 'no task: say .option("task", ...)'),
        ({"tsak": "bill"}, "there is no option 'tsak': did you mean 'task'?"),
        ({"path": "x"}, "there is no option 'path'"),
        ({"task": "a b"}, "task='a b': a name has no white space"),
        ({"priority": "high"}, "option 'priority' is 'high': write a whole number"),
        ({"priority": "101"}, "priority=101: use a whole number from -100 to 100"),
        ({"max_attempts": "0"}, "max_attempts=0: use a whole number from 1"),
        ({"queue": "a b"}, "queue='a b': a name has no white space"),
        ({"behind_pooler": "yes"}, "option 'behind_pooler' is 'yes': write true or false"),
        ({"run": ""}, "option 'run' is '': write 1 to 200 characters"),
        ({"run": "r" * 201}, "write 1 to 200 characters"),
        ({"unique_period": "soon"}, "option 'unique_period' is 'soon': write a number of seconds"),
        ({"unique_period": "0"}, "use seconds or a timedelta above zero"),
        ({"unique_collision": "ignore"}, "Unique(collision='ignore'): use one of"),
        ({"schema": "A"}, "schema='A': use lower-case letters"),
    ],
)
def test_options_that_make_no_sense_are_refused_with_what_to_write(
    options: dict[str, str], said: str
) -> None:
    given = {"task": "bill", "dsn": NOWHERE} | options

    with pytest.raises(InvalidOption) as refused:
        decide(read_options(given), columns("order_id", "unique_key"))
    assert said in str(refused.value)


def test_a_policy_for_unique_keys_without_any_is_refused() -> None:
    with pytest.raises(InvalidOption, match="unique_until, unique_period: this is about unique keys"):
        decide(
            read_options({"task": "bill", "dsn": NOWHERE, "unique_period": "60", "unique_until": "ended"}),
            columns("order_id"),
        )


def test_only_appending_is_offered(dsn: str) -> None:
    given = {"task": "bill", "dsn": dsn}
    with pytest.raises(InvalidOption, match=r'mode "overwrite".*append'):
        writer(given, columns("order_id"), overwrite=True)
    with pytest.raises(InvalidOption, match=r'outputMode "complete".*append'):
        stream_writer(given, columns("order_id"), overwrite=True)


@pytest.mark.parametrize(
    ("app", "said"),
    [
        ("nowhere", "use MODULE:ATTRIBUTE"),
        ("nowhere_at_all:queue", "ModuleNotFoundError"),
        ("{module}:nothing", "AttributeError"),
        ("{module}:not_a_queue", "is of type int, not a PgQueue"),
    ],
)
def test_an_app_that_is_not_there_is_refused(shop: str, app: str, said: str) -> None:
    named = app.format(module=shop.partition(":")[0])

    with pytest.raises(ConfigurationError, match=said):
        decide(read_options({"task": "receipt", "dsn": NOWHERE, "app": named}), columns("order_id"))


def test_a_task_that_the_app_does_not_have_is_refused_with_the_nearest(shop: str) -> None:
    with pytest.raises(UnknownTask, match="did you mean 'receipt'"):
        decide(read_options({"task": "reciept", "dsn": NOWHERE, "app": shop}), columns("order_id"))
    with pytest.raises(ConfigurationError, match="it takes 'x' by position only"):
        decide(read_options({"task": "place", "dsn": NOWHERE, "app": shop}), columns("order_id"))


def test_a_database_that_is_not_there_or_not_ready_is_told_before_any_row_is_read(
    empty_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConnectionFailed, match="cannot connect"):
        writing(NOWHERE, "order_id")
    with pytest.raises(SchemaMissing, match="pgqueue migrate"):
        writing(empty_dsn, "order_id")
    monkeypatch.delenv("PGQUEUE_DSN", raising=False)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    with pytest.raises(ConfigurationError, match="no database"):
        writer({"task": "bill"}, columns("order_id"), overwrite=False)


def test_one_bad_row_refuses_the_write_and_the_first_few_of_many_are_described(dsn: str) -> None:
    made = writing(dsn, "order_id", "priority", run="monday")
    messages = [
        staged(made, 0, batch(order_id=[1, 2], priority=[0, 500]), batch(order_id=[3], priority=[0])),
        staged(made, 1, batch(order_id=range(10, 20), priority=[200] * 10)),
    ]

    with pytest.raises(RowsRefused) as refused:
        made.commit(messages)
    made.abort(messages)

    said = str(refused.value)
    assert said.startswith("11 of 13 rows cannot be jobs of the task bill; nothing was enqueued: ")
    assert "row 2 of partition 0 (priority=500, order_id=2): priority=500: use a whole number" in said
    assert "row 4 of partition 1 (priority=200, order_id=13)" in said
    assert said.endswith("; and 6 more")
    assert (orders(dsn), writes(dsn), staged_rows(dsn), attempts(dsn)) == ([], [], 0, 0)
    assert written(dsn, batch(order_id=[1]), run="monday").enqueued == 1


def test_after_a_bad_row_nothing_more_is_staged(dsn: str) -> None:
    made = writing(dsn, "order_id", "priority")

    staged(made, 0, batch(order_id=[1], priority=[500]), batch(order_id=[2], priority=[0]))

    assert staged_rows(dsn) == 0


def test_keys_queues_and_times_of_all_kinds_arrive_as_they_were(dsn: str) -> None:
    odd = ["tab\there", "line\nfeed\r", r"back\slash \N \.", "“quoted”, {brace}", "\\N"]
    at = datetime(2026, 11, 21, 12, 0, 0, 123456, tzinfo=UTC)

    done = written(
        dsn, batch(order_id=range(5), unique_key=odd, queue=[r"a\b", "b", "b", "b", "b"], run_at=[at] * 5)
    )

    assert done.enqueued == 5
    found = ask(dsn, "select unique_key, queue, run_at from pgqueue.jobs order by id")
    assert [key for key, _, _ in found] == odd
    assert found[0][1:] == (r"a\b", at)
