"""``pgqueue pipeline contracts``: the types of tasks' arguments and results, as workers published them, and views by them."""

from typing import TYPE_CHECKING, Any

import click
import msgspec

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.output import json_option, print_json, print_table, say
from pgqueue.cli.pipeline.options import LakeOptions, in_lake_if_named
from pgqueue.cli.table import Column
from pgqueue.cli.verbs import VerbGroup
from pgqueue.store.connections.database import Database

if TYPE_CHECKING:
    from pgqueue.spark.lake.lake import Lake
    from pgqueue.spark.typed.dialects import Engine
    from pgqueue.values.payloads.contract import TaskContract

COLUMNS = (
    "task",
    Column("arguments", 1),
    Column("result", 2),
    Column("version", 4),
    Column("first seen", 5),
    Column("last seen", 3),
    Column("hash", 6),
)
ARGUMENT_COLUMNS = ("column", "argument", "type", "if absent")
LONGEST = 60
"""Characters of a type that the list shows."""


@click.group(cls=VerbGroup)
def contracts() -> None:
    """Show the types of tasks' arguments and results, which workers publish when they start, and SQL of views by them.

    They are read from the lake, if --lake or --config name one, else from the database.
    """


@contracts.command("list")
@in_lake_if_named
@click.option("--all", "everything", is_flag=True, help="Earlier contracts of each task, too.")
@json_option
@with_queue
def list_contracts(queue: PgQueue, /, *, given: LakeOptions | None, everything: bool, as_json: bool) -> None:
    """List the contract of each task, which is the one that a worker said last."""
    from pgqueue.spark.typed.contracts import all_contracts, columns_of  # noqa: PLC0415 - for this verb alone
    from pgqueue.spark.typed.contracts import contracts as last_of  # noqa: PLC0415

    of = _where(queue, given)
    found = all_contracts(of) if everything else [*last_of(of).values()]
    if as_json:
        print_json([_plain(one) for one in found])
        return
    rows = []
    for one in found:
        columns = columns_of(one)
        names = ", ".join(argument.field.name for argument in columns.arguments)
        rows.append(
            (
                one.task,
                names,
                None if columns.result is None else _type(columns.result, "spark")[:LONGEST],
                one.version,
                one.first_seen,
                one.last_seen,
                one.hash,
            )
        )
    print_table(COLUMNS, rows, empty="no worker has published a contract: a worker does when it starts")


@contracts.command()
@click.argument("task")
@in_lake_if_named
@click.option("--hash", "of_hash", metavar="HASH", help="An earlier contract, by the beginning of its hash.")
@click.option(
    "--engine",
    type=click.Choice(["spark", "duckdb"]),
    default="spark",
    show_default=True,
    help="Whose types.",
)
@json_option
@with_queue
def show(
    queue: PgQueue,
    /,
    *,
    task: str,
    given: LakeOptions | None,
    of_hash: str | None,
    engine: "Engine",
    as_json: bool,
) -> None:
    """Show the columns that a task's jobs have: the arguments and the result, and their types. --json: the JSON schemas."""
    from pgqueue.spark.typed.contracts import columns_of, contract  # noqa: PLC0415 - for this verb alone

    found = contract(_where(queue, given), task, hash=of_hash)
    if as_json:
        print_json(_plain(found))
        return
    columns = columns_of(found)
    rows: list[tuple[object, ...]] = [
        (
            one.column,
            one.field.name,
            _type(one.field.kind, engine),
            one.default or ("does not fit" if one.field.required else "null"),
        )
        for one in columns.arguments
    ]
    result = "JSON: the task does not say" if columns.result is None else _type(columns.result, engine)
    print_table(ARGUMENT_COLUMNS, [*rows, ("result", None, result, "null")], empty="")
    seen = "" if found.last_seen is None else f", said last {found.last_seen:%Y-%m-%d %H:%M} UTC"
    say(f"contract {found.hash}{seen}")


@contracts.command()
@click.argument("tasks", nargs=-1, metavar="[TASK]...")
@in_lake_if_named
@click.option("--engine", type=click.Choice(["spark", "duckdb"]), required=True, help="In whose SQL.")
@click.option(
    "--table",
    default="ended",
    show_default=True,
    metavar="SQL",
    help="What the view reads: the name of the lake's table of ended jobs in the engine, or what stands for it after FROM.",
)
@click.option("--prefix", default="", help="The views' names begin with this.")
@with_queue
def sql(
    queue: PgQueue,
    /,
    *,
    tasks: tuple[str, ...],
    given: LakeOptions | None,
    engine: "Engine",
    table: str,
    prefix: str,
) -> None:
    """Print statements that make a view of each task's jobs, with a column for each argument; of all tasks, if none is named.

    A view has the name of its task, with _ for what is no letter or digit.
    """
    from pgqueue.spark.typed.contracts import columns_of, contract  # noqa: PLC0415 - for this verb alone
    from pgqueue.spark.typed.contracts import contracts as last_of  # noqa: PLC0415
    from pgqueue.spark.typed.views import view_names, view_of  # noqa: PLC0415

    of = _where(queue, given)
    if not isinstance(of, Database):
        from pgqueue.spark.typed.frames import require_arguments  # noqa: PLC0415 - PyArrow

        require_arguments(of)
    known = last_of(of)
    names = view_names(known, prefix)
    for one in [contract(of, task) for task in tasks] or known.values():
        click.echo(view_of(columns_of(one), engine, task=one.task, name=names[one.task], table=table))


def _where(queue: PgQueue, given: LakeOptions | None) -> "Database | Lake":
    if given is not None:
        return given.lake()
    queue.database.verify()
    return queue.database


def _type(kind: Any, engine: "Engine") -> str:  # noqa: ANN401 - a kind of values
    from pgqueue.spark.typed.dialects import DIALECTS  # noqa: PLC0415 - for these verbs alone

    return DIALECTS[engine].type_of(kind)


def _plain(one: "TaskContract") -> dict[str, Any]:
    """With the schemas as JSON."""
    found: dict[str, Any] = msgspec.to_builtins(one)
    for name in ("arguments", "result"):
        found[name] = None if found[name] is None else msgspec.json.decode(found[name])
    return found
