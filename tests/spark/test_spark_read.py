"""``spark.read.format("pgqueue")`` in a real session: the parts, filters and errors as Spark passes them on.

What a read is asked: options and schemas that make no sense are refused, and each use of a DataFrame has the rows of its own filter.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql.functions import count, min  # noqa: A004 - Spark's names
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)
from spark.extracts import DAY, NOW, Connection, add_dead, add_history, make_days, reader, rows

from pgqueue.errors import ConfigurationError, InvalidOption, PipelineError
from pgqueue.spark.options import Options
from pgqueue.spark.reading.options import batch_options, stream_options
from pgqueue.spark.session import session
from pgqueue.spark.source import PgQueueSource, here
from pgqueue.store.pipeline.extract_where import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: "SparkSession", dsn: str, table: str, **options: str) -> "DataFrame":
    return spark.read.format("pgqueue").options(dsn=dsn, table=table, **options).load()


@pytest.fixture
def ended(connection: Connection) -> None:
    """Three days of jobs in two queues, and dead ones."""
    make_days(connection, NOW - 2 * DAY, NOW)
    for days in range(3):
        for queue in ("mail", "reports"):
            first = days * 1_000 + 500 * (queue == "reports")
            add_history(
                connection, range(first, first + 500), at=NOW - days * DAY, queue=queue, args={"n": days}
            )
    add_dead(connection, range(10_000, 10_100), queue="reports")
    connection.commit()


@pytest.mark.usefixtures("ended")
def test_parts_are_read_by_tasks_and_add_up(spark: "SparkSession", dsn: str) -> None:
    found = read(spark, dsn, "ended", partitions="3", columns="all")

    summed = found.groupBy("day", "queue", "outcome").agg(count("id"), min("args")).collect()

    assert found.rdd.getNumPartitions() >= 3
    assert {tuple(row) for row in summed} == {
        *(
            ((NOW - days * DAY).date(), queue, "succeeded", 500, f'{{"n": {days}}}')
            for days in range(3)
            for queue in ("mail", "reports")
        ),
        (NOW.date(), "reports", "dead", 100, "{}"),
    }


@pytest.mark.usefixtures("ended")
def test_each_use_of_a_dataframe_has_the_rows_of_its_own_filter(spark: "SparkSession", dsn: str) -> None:
    """Spark keeps one plan of a source for each load(), whatever filters it is used with."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    found = read(spark, dsn, "history", columns="id,queue,task", outcome="succeeded")
    mail, reports = found.where("queue = 'mail'"), found.where("queue = 'reports' and id < 600")
    few = found.where("id in (1, 2, 3)")

    both = mail.union(reports).union(few).groupBy("queue").count().collect()

    assert {tuple(row) for row in both} == {("mail", 1_500 + 3), ("reports", 100)}
    assert mail.join(few.select("id"), "id").count() == few.join(mail, "id", "left_semi").count() == 3
    assert reports.cache().count() == 100
    assert (reports.union(mail).count(), few.count(), found.count()) == (1_600, 3, 3_000)
    reports.unpersist()


@pytest.mark.usefixtures("ended")
def test_loads_with_expressions_of_their_own_can_be_united(spark: "SparkSession", dsn: str) -> None:
    few, mail = (read(spark, dsn, "history", columns="id", where=one) for one in ("id < 4", "queue = 'mail'"))
    assert (few.union(mail).count(), few.join(mail, "id").count(), few.union(few).count()) == (1_504, 4, 8)


@pytest.mark.usefixtures("ended")
def test_long_columns_are_read_only_if_they_are_asked_for(spark: "SparkSession", dsn: str) -> None:
    long = {"args", "errors", "meta", "result"}
    for table in TABLES:
        short, whole = read(spark, dsn, table).columns, read(spark, dsn, table, columns="all").columns
        assert whole == list(TABLES[table].columns)
        assert short == [name for name in whole if name not in long]
    assert read(spark, dsn, "history", columns=" All ").columns == list(TABLES["history"].columns)
    stream = spark.readStream.format("pgqueue").options(dsn=dsn, table="ended").load()
    assert not long & set(stream.columns)


@pytest.mark.usefixtures("ended")
def test_a_users_schema_picks_columns_and_parses_json(spark: "SparkSession", dsn: str) -> None:
    found = (
        spark.read.format("pgqueue")
        .schema("args struct<n:int>, id bigint")
        .options(dsn=dsn, table="history", **{"from": str(NOW.date())})
        .load()
    )

    assert found.selectExpr("max(args.n)", "count(id)").first() == (0, 1_000)


@pytest.mark.usefixtures("ended")
def test_the_dsn_need_not_be_in_the_options(
    spark: "SparkSession", dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGQUEUE_DSN", dsn)

    found = session().read.format("pgqueue").options(table="history", columns="id").load()

    assert found.count() == 3_000
    monkeypatch.delenv("PGQUEUE_DSN")
    assert session() is spark


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"table": "histroy"}, "InvalidOption: there is no table 'histroy': did you mean 'history'?"),
        (
            {"table": "history", "dsn": "postgresql://me:hush@127.0.0.1:1/app"},
            "ConnectionFailed: cannot connect to user=me dbname=app host=127.0.0.1 port=1",
        ),
    ],
)
def test_what_cannot_be_read_is_said_before_a_task_starts(
    spark: "SparkSession", options: dict[str, str], complaint: str
) -> None:
    with pytest.raises(AnalysisException) as refused:
        spark.read.format("pgqueue").options(**options).load().collect()

    assert complaint in str(refused.value)
    assert "hush" not in str(refused.value)


@pytest.mark.usefixtures("ended")
def test_a_row_that_does_not_fit_is_named_in_sparks_error(spark: "SparkSession", dsn: str) -> None:
    found = (
        spark.read.format("pgqueue").schema("args struct<n:string>").options(dsn=dsn, table="history").load()
    )

    with pytest.raises(PythonException) as refused:
        found.collect()
    last = str(refused.value).strip().splitlines()[-1]
    assert last.startswith("pgqueue.errors.PipelineError: table 'history', id ")
    assert "'args' does not fit struct<n:string>: Expected `str | null`, got `int` - at `$.n`" in last


DSN = "postgresql://nobody@nowhere.invalid/none"


def fields(**types: Any) -> StructType:
    """A schema."""
    return StructType([StructField(name, type_) for name, type_ in types.items()])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"table": "histroy"}, "no table 'histroy': did you mean 'history'?"),
        ({"table": "history", "column": "id"}, "no option 'column': did you mean 'columns'?"),
        ({"table": "history", "columns": "id,quue"}, "no column 'quue'; did you mean 'queue'?"),
        ({"table": "history", "columns": "id,,queue"}, "'columns' is 'id,,queue': write names"),
        ({"table": "history", "columns": "id,id"}, "names, each once"),
        ({"table": "history", "from": "20 Nov"}, "'from' is '20 Nov': write a day such as 2026-11-20"),
        ({"table": "history", "from": "2026-11-21", "to": "2026-11-20"}, "there is no day"),
        ({"table": "jobs", "from": "2026-11-21"}, "table 'jobs' does not have"),
        ({"table": "history", "partitions": "0"}, "'partitions' is '0': write a number from 1 on"),
        ({"table": "history", "partitions": "2", "pagesPerPartition": "2"}, "not both"),
        (
            {"table": "history", "outcome": "cancled"},
            "option 'outcome': there is no 'cancled': did you mean 'cancelled'?",
        ),
        ({"table": "jobs", "outcome": "dead"}, "option 'outcome': table 'jobs' has no such column"),
        ({"table": "history", "queue": ""}, "'queue' is '': write values"),
        ({"table": "history", "startingFrom": "latest"}, "'startingFrom' is for readStream"),
    ],
)
def test_a_read_that_makes_no_sense_is_refused_before_anything_is_asked(
    options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidOption, match=complaint.replace("?", "[?]")):
        reader(**{"dsn": DSN, **options}).partitions()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"table": "jobs"}, "table 'jobs' has no stream, because its rows change"),
        (
            {"table": "history", "outcome": "cancled"},
            "option 'outcome': there is no 'cancled': did you mean 'cancelled'?",
        ),
        ({"table": "jobs", "outcome": "dead"}, "option 'outcome': table 'jobs' has no such column"),
        ({"table": "history", "queue": ""}, "'queue' is '': write values"),
        ({"table": "history", "startingFrom": "yesterday"}, "write earliest, latest or a day"),
        ({"table": "history", "maxRowsPerBatch": "many"}, "write a number of rows"),
        ({"table": "history", "failOnDataLoss": "perhaps"}, "write true or false"),
        ({"table": "history", "from": "2026-11-20"}, "'from' is for read, not for readStream"),
    ],
)
def test_a_stream_that_makes_no_sense_is_refused(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidOption, match=complaint):
        stream_options(Options({"dsn": DSN, **options}))


def test_which_table_is_asked_for_must_be_said() -> None:
    with pytest.raises(
        InvalidOption, match='option "table" is missing: use history, dead, jobs, ended, workers'
    ):
        PgQueueSource({"dsn": DSN}).schema()


def test_letters_of_an_options_name_may_be_large_or_small_as_in_spark() -> None:
    given = batch_options(Options({"DSN": DSN, "Table": "history", "pagesperpartition": " 7 "}))

    assert given.pages == 7


def test_the_dsn_is_that_of_the_environment_in_which_the_source_was_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGQUEUE_DSN", "postgresql+psycopg://one/a")
    made = here()
    monkeypatch.delenv("PGQUEUE_DSN")
    monkeypatch.delenv("DATABASE_URL", raising=False)

    with pytest.raises(ConfigurationError, match=r'no database: give option\("dsn"'):
        PgQueueSource({"table": "history"}).schema()
    made({"table": "history"}).schema()
    assert made({"table": "history"})._options().get("dsn") == "postgresql+psycopg://one/a"  # noqa: SLF001 - as a reader is told it
    assert made({"table": "history", "dsn": "x"})._options().get("dsn") == "x"  # noqa: SLF001 - the part under test


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        (fields(), "no column is asked for"),
        (fields(arg=StringType()), "no column 'arg'; did you mean 'args'?"),
        (fields(id=StringType()), "'id' of table 'history' cannot be string: use bigint"),
        (fields(attempts=StringType()), "cannot be string: use smallint or int or bigint"),
        (fields(args=LongType()), "cannot be bigint: use string or a struct or an array or a map"),
        (fields(args=fields(x=VariantType())), "JSON cannot be read as variant"),
        (fields(args=MapType(LongType(), StringType())), "JSON cannot be read as map<bigint,string>"),
    ],
)
def test_a_schema_that_does_not_fit_the_table_is_refused(schema: StructType, complaint: str) -> None:
    with pytest.raises(InvalidOption, match=complaint.replace("?", "[?]")):
        reader(DSN, "history", schema=schema)


def test_columns_and_a_schema_must_not_contradict_each_other() -> None:
    with pytest.raises(InvalidOption, match="give one of the two"):
        reader(DSN, "history", schema=fields(id=LongType()), columns="id,queue")


ORDER = fields(
    order_id=IntegerType(),
    total=DoubleType(),
    at=TimestampType(),
    tags=ArrayType(StringType()),
    notes=MapType(StringType(), IntegerType()),
)


def test_json_is_parsed_into_the_users_types(dsn: str, connection: Connection) -> None:
    order = {
        "order_id": 5,
        "total": 2,
        "at": "2026-11-20T12:00:00+01:00",
        "tags": ["a", None],
        "notes": {"b": 1},
    }
    add_history(connection, [1], args={**order, "not asked for": {}})
    add_history(connection, [2], args={})
    connection.execute("update pgqueue.job_history set result = 'null' where id = 2")
    connection.commit()

    schema = fields(args=ORDER, attempts=LongType(), result=ArrayType(LongType()))
    connection.execute("update pgqueue.job_history set result = '[1, 2]' where id = 1")
    connection.commit()
    first, second = sorted(
        rows(reader(dsn, "history", schema=schema)), key=lambda row: row["args"]["order_id"] is None
    )

    assert first["args"] == {
        "order_id": 5,
        "total": 2.0,
        "at": datetime(2026, 11, 20, 11, tzinfo=UTC),
        "tags": ["a", None],
        "notes": [("b", 1)],
    }
    assert (first["attempts"], first["result"]) == (1, [1, 2])
    assert (set(second["args"].values()), second["result"]) == ({None}, None)


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        ({"order_id": "5"}, "Expected `int | null`, got `str` - at `$.order_id`"),
        ({"order_id": 2**31}, "Expected `int` <= 2147483647 - at `$.order_id`"),
        ({"total": "much"}, "got `str` - at `$.total`"),
        ({"at": "noon"}, "Invalid RFC3339 encoded datetime - at `$.at`"),
        ({"at": "2026-11-20T12:00:00"}, "Expected `datetime` with a timezone component - at `$.at`"),
        ({"tags": [1]}, "got `int` - at `$.tags[0]`"),
        ({"notes": {"a": "b"}}, "got `str` - at `$.notes[...]`"),
    ],
)
def test_json_that_does_not_fit_names_the_row_the_column_and_the_place(
    dsn: str, connection: Connection, args: dict[str, object], complaint: str
) -> None:
    add_history(connection, [1], args={})
    add_history(connection, [8], args=args)
    connection.commit()

    with pytest.raises(PipelineError) as refused:
        list(rows(reader(dsn, "history", schema=fields(args=ORDER))))
    assert str(refused.value).startswith("table 'history', id 8: 'args' does not fit struct<order_id:int")
    assert complaint in str(refused.value)


def test_a_null_where_the_schema_has_none_names_the_row(dsn: str, connection: Connection) -> None:
    add_history(connection, [4])
    connection.commit()
    schema = StructType([StructField("unique_key", StringType(), nullable=False)])

    with pytest.raises(PipelineError, match="id 4: 'unique_key' does not fit string: it is null"):
        list(rows(reader(dsn, "history", schema=schema)))
