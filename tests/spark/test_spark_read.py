"""``spark.read.format("pgqueue")`` in a real session: the parts, filters and errors as Spark passes them on."""

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql.functions import count, min  # noqa: A004 - Spark's names
from spark.extracts import DAY, NOW, Connection, add_dead, add_history, make_days

from pgqueue.spark.session import session

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
    found = read(spark, dsn, "ended", partitions="3")

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
def test_filters_leave_sparks_plan_for_postgresqls_and_give_the_same_rows(
    spark: "SparkSession", dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = read(spark, dsn, "history", pushdown="true")
    yesterday = (NOW - DAY).date()
    kept = found.where(
        f"queue = 'mail' and day >= date'{yesterday}' and finished_at < timestamp'{NOW:%Y-%m-%d %H:%M:%S}' "
        "and outcome in ('succeeded', 'cancelled') and args like '%1%' and id <=> 1007 and started_at is not null"
    )

    kept.explain()
    plan = capsys.readouterr().out

    assert "Contains(args" in plan
    for pushed in ("'mail'", "(mail", "finished_at#", "outcome#"):
        assert f"Filter ({pushed}" not in plan
    assert plan.count("Filter") == 2  # of the plan, and Spark's own runtime filters
    assert "mail" not in plan
    assert [row["id"] for row in kept.collect()] == [1007]


@pytest.mark.usefixtures("ended")
def test_a_dataframe_can_be_used_under_several_filters(spark: "SparkSession", dsn: str) -> None:
    found = read(spark, dsn, "history", columns="id,queue,task", outcome="succeeded")
    mail, reports = found.where("queue = 'mail'"), found.where("queue = 'reports' and id < 600")

    both = mail.union(reports).groupBy("queue").count().collect()

    assert {tuple(row) for row in both} == {("mail", 1_500), ("reports", 100)}
    assert found.count() == 3_000


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
