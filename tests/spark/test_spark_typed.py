"""Typed columns of a task's jobs: Spark and DuckDB make the same of each row, and nothing that does not fit is lost."""

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Required, TypedDict

import duckdb
import msgspec
import pyarrow as pa
import pytest
from looking import ask
from pydantic import BaseModel
from pyspark.sql.types import ArrayType, LongType, StringType
from spark.lake_history import DAY, ended, no_session

from pgqueue import Context, PgQueue
from pgqueue.errors import InvalidOption, LakeError
from pgqueue.spark import arguments
from pgqueue.spark.config import HiddenColumns
from pgqueue.spark.lake.contracts import CONTRACTS, contracts_in
from pgqueue.spark.lake.export import ExportOptions, export
from pgqueue.spark.lake.lake import Lake
from pgqueue.spark.typed.columns import TypedColumns, selection, typed_columns
from pgqueue.spark.typed.contracts import result_kind
from pgqueue.spark.typed.dialects import DIALECTS, Engine
from pgqueue.spark.typed.kinds import JsonText, MapOf, Plain, Record, kind_of, within
from pgqueue.spark.typed.views import view_names, view_of
from pgqueue.store.pipeline import contracts as plans
from pgqueue.values.payloads.contract import TaskContract, contract_of
from pgqueue.values.payloads.result import ReturnType
from pgqueue.values.payloads.signature import Signature

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT = datetime(2026, 11, 20, 10, 0, 0, 123456, tzinfo=UTC)
TASK = 'it\'s \\ "hostile" `t`'
Row = tuple[int, str, str | None, str | None]
Both = tuple[list[Row], list[dict[str, Any]], list[dict[str, Any]]]


class Colour(Enum):
    RED = "r"


class Tree(msgspec.Struct):
    v: int
    leaves: list["Tree"] = []


class Renamed(msgspec.Struct, rename={"a": "a.'b` ~/"}):
    a: int


class Typed(TypedDict, total=False):
    a: Required[int]
    b: str


class Model(BaseModel):
    amount: Decimal
    sub: "Inner | None" = None


class Inner(BaseModel):
    q: int


@dataclass
class Line:
    sku: str
    n: int = 1
    sent: datetime | None = None


def bill(  # noqa: PLR0917 - each type once
    ctx: Context,
    a: int,
    c: str,
    f: float,
    at: datetime,
    day: date,
    lines: list[Line],
    either: int | str,
    maybe: int | None,
    colour: Colour,
    tree: Tree,
    typed: Typed,
    pair: tuple[int, str],
    anything: Any,
    model: Model,
    mixed: list[int | str | Line],
    renamed: Renamed,
    id: int = 7,  # noqa: A002 - an argument that the jobs have a column of
    some: "int | None" = 5,
    late: bool = False,  # noqa: FBT001, FBT002 - as apps do
    *more: int,
    **others: str,
) -> list[Line] | None: ...


GIVEN: dict[str, Any] = {
    "a": 1,
    "c": "x'\"\\`\u2028é",
    "f": 2,
    "at": AT,
    "day": AT.date(),
    "lines": [Line("s", 2, AT), Line("t")],
    "either": "5",
    "maybe": None,
    "colour": Colour.RED,
    "tree": Tree(1, [Tree(2)]),
    "typed": {"a": 1},
    "pair": (1, "b"),
    "anything": {"z": [1]},
    "model": Model(amount=Decimal("1.50"), sub=Inner(q=1)),
    "mixed": [1, "1", Line("z")],
    "renamed": Renamed(3),
}


def each(name: str, *values: object) -> list[dict[str, Any]]:
    return [{name: value} for value in values]


MISFITS: list[dict[str, Any]] = [
    *each("a", ..., "5", None, 1.5, 2**63, [1], {}),
    {"a": True},
    *each("c", 5, None, ["x"]),
    *each("f", "1", None),
    *each("at", "no", 17, None),
    {"day": "2026-13-01"},
    *each("lines", {"a": 1}, [{"sku": 1}], [{}], [None], "[]"),
    {"maybe": "x"},
    {"maybe": ...},
    {"anything": ...},
    {"either": None},
    {"tree": {}},
    {"typed": [1]},
    {"pair": None},
    {"model": {"sub": None}},
    {"model": {"amount": "1", "sub": {"q": "z"}}},
    {"renamed": {"a": 3}},
    {"others": {"a": 1}},
    {"id": "q"},
    {"some": "q"},
    {"late": 1},
    {"more": [1, "2"]},
    {"unknown": 1},
]
OPAQUE = ['{"$enc":"abc"}', "[1]", '{"$not_kept": 5}', "5", "null"]


def contract(function: Any, task: str = TASK) -> TaskContract:
    found = contract_of(task, Signature(function, Context).schema, ReturnType(function).schema)
    assert found is not None
    return found


def columns(function: Any) -> TypedColumns:
    made = contract(function)
    return typed_columns(made.arguments, made.result)


def made(engine: Engine, of: TypedColumns, rows: list[Row], spark: "SparkSession") -> list[dict[str, Any]]:
    """What an engine makes of these rows, in their order."""
    found, quote = selection(of, engine, ("id", "args", "result")), DIALECTS[engine].quote
    statement = found.of("rows_of_a_task", quote) + " order by id"
    if engine == "spark":
        frame = spark.createDataFrame(rows, "id bigint, task string, args string, result string")
        frame.createOrReplaceTempView("rows_of_a_task")
        try:
            return [row.asDict(recursive=True) for row in spark.sql(statement).collect()]
        finally:  # the session is the suite's
            spark.catalog.dropTempView("rows_of_a_task")
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        names = ("id", "task", "args", "result")
        connection.register("rows_of_a_task", pa.table([*map(list, zip(*rows, strict=True))], names=names))
        answer = connection.execute(statement)
        heads = [one[0] for one in answer.description or ()]
        return [dict(zip(heads, row, strict=True)) for row in answer.fetchall()]


def plain(value: Any) -> Any:
    """A value without what engines may write in their own way: blanks and order in JSON, zones of times."""
    match value:
        case str():  # also a text that is JSON by chance
            try:
                return json.loads(value)
            except ValueError:
                return value
        case datetime():
            return value.replace(tzinfo=None)
        case list():
            return [plain(one) for one in value]
        case dict():
            return {name: plain(one) for name, one in value.items()}
    return value


@pytest.fixture(scope="module")
def both(spark: "SparkSession") -> Both:
    """Rows that fit, rows that do not, and what both engines make of them."""
    signature = Signature(bill, Context)
    fits = [
        signature.encode((), GIVEN).decode(),
        signature.encode((), GIVEN | {"id": 3, "some": None, "late": True, "ä.b": "y"}).decode(),
    ]
    whole = json.loads(fits[0])
    bad = [
        json.dumps({name: value for name, value in {**whole, **change}.items() if value is not ...})
        for change in MISFITS
    ]
    lines = ['[{"sku": "a", "n": 2}]', "[]", "null", '[{"sku": 5}]', '{"sku": "a"}', None]
    texts = [*fits, *bad, *OPAQUE]
    rows: list[Row] = [(number, TASK, args, lines[number % len(lines)]) for number, args in enumerate(texts)]
    of = columns(bill)
    return rows, made("spark", of, rows, spark), made("duckdb", of, rows, spark)


def test_both_engines_make_the_same_of_every_row(both: Both) -> None:
    rows, in_spark, in_duckdb = both
    assert len(in_spark) == len(in_duckdb) == len(rows)
    for row, one, other in zip(rows, in_spark, in_duckdb, strict=True):
        assert plain(one) == plain(other), row[2]


def test_what_fits_is_in_columns_of_its_types(both: Both) -> None:
    first, second = both[1][:2]
    assert first | {"either": None, "pair": None, "anything": None, "mixed": None} == {
        "id": 0,
        "a": 1,
        "c": GIVEN["c"],
        "f": 2.0,
        "at": AT.replace(tzinfo=None),
        "arg_day": AT.date(),
        "lines": [
            {"sku": "s", "n": 2, "sent": AT.replace(tzinfo=None)},
            {"sku": "t", "n": 1, "sent": None},
        ],
        "either": None,
        "maybe": None,
        "colour": "r",
        "tree": {"v": 1, "leaves": ['{"leaves":[],"v":2}']},
        "typed": {"a": 1, "b": None},
        "pair": None,
        "anything": None,
        "model": {"amount": "1.50", "sub": {"q": 1}},
        "mixed": None,
        "renamed": {"a.'b` ~/": 3},
        "arg_id": 7,
        "some": 5,
        "late": False,
        "more": [],
        "others": {},
        "result": [{"sku": "a", "n": 2, "sent": None}],
        "misfit": None,
        "result_misfit": None,
    }
    # a text of one of several types is JSON: "5" is no 5
    assert (first["either"], first["pair"], first["anything"]) == ('"5"', '[1,"b"]', '{"z":[1]}')
    assert [json.loads(one) for one in first["mixed"]] == [1, "1", {"sku": "z", "n": 1, "sent": None}]
    # a null that was given is no default
    assert (second["arg_id"], second["some"], second["late"]) == (3, None, True)
    assert second["others"] == {"ä.b": "y"}


def test_every_row_that_does_not_fit_keeps_its_json_and_what_fits_of_it(both: Both) -> None:
    rows, in_spark, _ = both
    for row, one in zip(rows[2:], in_spark[2:], strict=True):
        assert one["misfit"] == row[2]
        if row[2] not in OPAQUE:
            changed = next(iter(MISFITS[row[0] - 2]))
            assert one.get({"day": "arg_day", "id": "arg_id"}.get(changed, changed)) is None
            assert (one["a"] == 1) == (changed != "a")
        else:
            opaque = ("a", "arg_id", "some", "late", "more", "others")
            assert [name for name in opaque if one[name] is not None] == []


def test_results_that_do_not_fit_keep_their_json(both: Both) -> None:
    rows, in_spark, _ = both
    for row, one in zip(rows, in_spark, strict=True):
        fits = row[3] in {None, "null", "[]", '[{"sku": "a", "n": 2}]'}
        assert one["result_misfit"] == (None if fits else row[3])
        assert (one["result"] is None) == (row[3] not in {"[]", '[{"sku": "a", "n": 2}]'})


def test_arguments_called_as_columns_of_the_jobs_get_other_names_each_its_own() -> None:
    properties: dict[str, Any] = {
        name: {} for name in ("ID", "id", "arg_id", "misfit", "x", "X", "pgqueue_args", "")
    }
    of = typed_columns(json.dumps({"properties": properties}), None)
    names = [one.column for one in of.arguments]
    assert names == [
        "arg_ID",
        "arg_arg_id",
        "arg_arg_arg_id",
        "arg_misfit",
        "x",
        "arg_X",
        "arg_pgqueue_args",
        "arg_",
    ]
    assert len({one.lower() for one in names}) == len(names)


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        (7, JsonText()),
        ({}, JsonText()),
        ({"type": ["string"]}, JsonText()),
        ({"type": "quux"}, JsonText()),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, JsonText()),
        ({"anyOf": []}, JsonText(nullable=False)),
        ({"anyOf": 7, "type": "integer"}, Plain("integer")),
        ({"enum": []}, JsonText(nullable=False)),
        ({"enum": [1, None]}, Plain("integer", nullable=True)),
        ({"enum": [1, "a"]}, JsonText(nullable=False)),
        ({"type": "object", "properties": 7}, JsonText(nullable=False)),
        ({"type": "object", "properties": {"a": {}, "A": {}}}, JsonText(nullable=False)),
        ({"type": "object"}, MapOf(JsonText())),
        (
            {"anyOf": [{"type": "integer"}, {"type": "number"}, {"type": "null"}]},
            Plain("number", nullable=True),
        ),
    ],
    ids=str,
)
def test_a_schema_of_any_form_has_a_kind(schema: object, kind: object) -> None:
    assert kind_of(schema) == kind


def test_a_schema_that_grows_without_end_has_an_end() -> None:
    parts = {
        f"p{n}": {
            "type": "object",
            "properties": {f"x{k}": {"$ref": f"#/$defs/p{(n + k) % 40}"} for k in range(9)},
        }
        for n in range(40)
    }
    found = kind_of({"$ref": "#/$defs/p0", "$defs": parts})
    assert isinstance(found, Record)
    assert len(DIALECTS["spark"].type_of(found)) < 200_000


@pytest.mark.parametrize(("wide", "fewest", "most"), [(1, 12, 12), (2, 30, 300), (3, 30, 300)])
def test_a_part_counts_the_more_the_deeper_it_is_since_engines_plan_a_lambda_for_each_level(
    wide: int, fewest: int, most: int
) -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(11):
        schema = {"type": "object", "properties": {f"x{k}": schema for k in range(wide)}}
    assert fewest <= len([*within(kind_of(schema))]) <= most


# In a database, and in a lake.


def send(n: int, text: str, big: float, none: int | None = None, kind: str = "mail") -> int:
    raise NotImplementedError


@pytest.fixture
def history(queue: PgQueue, dsn: str) -> PgQueue:
    """A day of ended jobs of the task ``send``, and its contract."""
    ended(dsn, DAY, 9)
    ask(dsn, "update pgqueue.job_history set args = '{\"m\": 1}' where id = 3 returning id")
    queue.database.run(plans.say([contract(send, "send")]))
    return queue


def exported(queue: PgQueue, path: Path, hide: HiddenColumns | None = None) -> Lake:
    lake = Lake(path)
    export(no_session, queue.database, lake, options=ExportOptions(hide=hide))
    return lake


def test_a_lake_and_its_database_have_the_same_columns(
    spark: "SparkSession", history: PgQueue, tmp_path: Path, dsn: str
) -> None:
    lake = exported(history, tmp_path / "lake")
    of_lake = arguments(spark, "send", lake=lake, days=[DAY])
    of_database = arguments(spark, "send", dsn=dsn, days=[DAY])
    assert of_lake.schema == of_database.schema
    rows = [[row.asDict() for row in frame.orderBy("id").collect()] for frame in (of_lake, of_database)]
    assert rows[0] == rows[1]
    assert [row["n"] for row in rows[0]] == [1, 2, None, *range(4, 10)]
    assert [json.loads(row["misfit"]) for row in rows[0] if row["misfit"]] == [{"m": 1}]
    assert {row["kind"] for row in rows[0] if not row["misfit"]} == {"mail"}
    assert [row["result"] for row in rows[0]][:4] == [None, 2, None, 4]
    assert rows[0][0]["outcome"] == "succeeded"
    assert arguments(spark, "send", lake=lake.uri, days=[DAY + timedelta(days=1)]).count() == 0
    assert result_kind(lake, "send") == result_kind(history.database, "send") == Plain("integer")
    assert result_kind(lake, "nothing") is None


def test_live_jobs_have_their_columns_and_state(spark: "SparkSession", history: PgQueue, dsn: str) -> None:
    @history.task(name="a.b")
    def odd(status: list[Line]) -> None: ...

    history.database.run(plans.say([contract(odd.function, "a.b")]))
    odd.enqueue([Line("x")])
    found = arguments(spark, "a.b", dsn=dsn, table="jobs")
    assert isinstance(found.schema["arg_status"].dataType, ArrayType)
    (row,) = found.collect()
    assert (row["status"], row["arg_status"][0]["sku"]) == ("ready", "x")


def test_the_last_contract_counts_and_an_earlier_one_can_be_asked_for(
    spark: "SparkSession", history: PgQueue, tmp_path: Path
) -> None:
    def later(n: str) -> None: ...

    first, second = contract(send, "send"), contract(later, "send")
    lake = exported(history, tmp_path / "lake")
    before = lake.entry(CONTRACTS, None)
    history.database.run(plans.say([second]))
    exported(history, tmp_path / "lake")
    lake = Lake(tmp_path / "lake")
    assert [one.hash for one in contracts_in(lake)] == [second.hash, first.hash]
    exported(history, tmp_path / "lake")  # nothing new: nothing is written
    after = Lake(tmp_path / "lake").entry(CONTRACTS, None)
    assert before is not None
    assert after is not None
    assert after.generation == before.generation + 1
    now = arguments(spark, "send", lake=lake)
    assert now.schema["n"].dataType == StringType()
    assert now.where("misfit is not null").count() == 9
    assert (
        arguments(spark, "send", lake=lake, contract_hash=first.hash[:6]).schema["n"].dataType == LongType()
    )
    # the lake keeps what the database has forgotten
    ask(history, "delete from pgqueue.task_contracts returning 1")
    exported(history, tmp_path / "lake")
    assert len(contracts_in(Lake(tmp_path / "lake"))) == 2


def test_what_cannot_be_read_is_refused_with_a_remedy(
    spark: "SparkSession", history: PgQueue, tmp_path: Path, dsn: str
) -> None:
    lake = exported(history, tmp_path / "hidden", HiddenColumns(("args", "result"), ()))
    with pytest.raises(LakeError, match="no arguments to make columns of"):
        arguments(spark, "send", lake=lake)
    with pytest.raises(
        InvalidOption, match=r"no worker has published what task 'sned' takes; did you mean 'send'\?"
    ):
        arguments(spark, "sned", dsn=dsn)
    with pytest.raises(InvalidOption, match="has no contract 'xyz'"):
        arguments(spark, "send", dsn=dsn, contract_hash="xyz")
    with pytest.raises(InvalidOption, match="give no dsn"):
        arguments(spark, "send", lake=lake, dsn=dsn)
    with pytest.raises(InvalidOption, match="table='dead'"):
        arguments(spark, "send", dsn=dsn, table="dead")


# Views.


def test_views_have_names_that_every_catalog_takes_and_each_its_own() -> None:
    names = view_names(["shop.bill", "shop_bill", "Shop.Mail", TASK, "ß"], "v_")
    assert names["Shop.Mail"] == "v_shop_mail"
    assert len({*names.values()}) == 5
    assert all(name.isascii() and name.replace("_", "").isalnum() for name in names.values())


def test_the_view_of_a_task_with_hostile_names_is_made_in_both_engines(
    spark: "SparkSession", tmp_path: Path
) -> None:
    of = typed_columns(
        json.dumps(
            {"properties": {"a\"'`\\.b": {"type": "integer", "default": 4}, "c d": {"type": "string"}}}
        ),
        None,
    )
    row: dict[str, Any] = {"id": 1, "task": TASK, "args": '{"c d": "e"}', "queue": "q"}
    from pgqueue.spark.lake.columns import ENDED_TABLE  # noqa: PLC0415 - PyArrow

    table = pa.Table.from_pylist([row], ENDED_TABLE)
    with duckdb.connect() as connection:
        connection.register("ended", table)
        connection.execute(view_of(of, "duckdb", task=TASK, name='v"', table="ended"))
        found = connection.execute('select "a""\'`\\.b", "c d", misfit from "v"""').fetchall()
    assert found == [(4, "e", None)]
    place = tmp_path / "ended"
    import pyarrow.parquet as pq  # noqa: PLC0415 - only here

    place.mkdir()
    pq.write_table(table, place / "one.parquet")
    statement = view_of(of, "spark", task=TASK, name="v_typed", table=f"parquet.`{place}`")
    spark.sql(statement.removesuffix(";"))
    try:
        (one,) = spark.sql("select `a\"'``\\.b` as a, `c d` as c, misfit from v_typed").collect()
        assert (one["a"], one["c"], one["misfit"]) == (4, "e", None)
    finally:
        spark.sql("drop view v_typed")
