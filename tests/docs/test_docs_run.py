"""Every python and sql block of the words runs, page by page, against a real database."""

import ast
import asyncio
import importlib
import inspect
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import psycopg
import pytest
from docs.pages import DOCS, Block, blocks, page_id, pages
from running import Running
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from pgqueue import PgQueue

RUNNABLE = {"python", "sql", "setup"}
PIPELINE = DOCS / "pipeline"
SCHEDULERS = {PIPELINE / "airflow.md", PIPELINE / "dagster.md"}
"""Their blocks need large libraries; ``tests/spark/test_spark_schedulers.py`` runs them with stand-ins for these."""
RUN = [
    page
    for page in pages()
    if page not in SCHEDULERS and any(block.language in RUNNABLE for block in blocks(page))
]


@dataclass(frozen=True, slots=True)
class Example:
    """What the blocks of a page share.

    Attributes:
        module: their names.
        folder: where the files are that they name.
        dsn: of their database.
    """

    module: ModuleType
    folder: Path
    dsn: str

    @property
    def names(self) -> dict[str, Any]:
        return vars(self.module)

    def modules(self) -> list[ModuleType]:
        """The modules that were imported from the folder, and the blocks' own."""
        return [self.module, *(one for one in list(sys.modules.values()) if _lies_in(one, self.folder))]


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty folder that every user can enter: as root, another user runs the server of an embedded database."""
    with tempfile.TemporaryDirectory(prefix="page-") as made:
        Path(made).chmod(0o755)
        yield Path(made)
        if (kept := sys.modules.get("pgqueue.store.kept_server")) is not None:
            kept.leave_all()


@pytest.fixture
def example(dsn: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Example]:
    """An empty module in ``sys.modules``, an empty folder on the path, and the settings that users make."""
    monkeypatch.setenv("PGQUEUE_DSN", dsn)
    monkeypatch.setenv("DATABASE_URL", dsn.replace("postgresql://", "postgresql+psycopg://"))
    monkeypatch.syspath_prepend(place)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.chdir(place)
    shared = Example(ModuleType("example"), place, dsn)
    sys.modules["example"] = shared.module
    yield shared
    for name in [one.__name__ for one in shared.modules()]:
        del sys.modules[name]


@pytest.mark.parametrize("page", [page for page in RUN if PIPELINE not in page.parents], ids=page_id)
async def test_the_blocks_of_a_page_run_in_order_and_print_what_it_says(
    page: Path, example: Example, running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    await _run_page(page, example, running, capsys)


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("page", [page for page in RUN if PIPELINE in page.parents], ids=page_id)
async def test_the_blocks_of_a_page_about_the_pipeline_do_so_in_the_suites_spark_session(
    page: Path, example: Example, running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    await _run_page(page, example, running, capsys)


async def _run_page(
    page: Path, example: Example, running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        for block in blocks(page):
            if block.word == "output":
                assert capsys.readouterr().out == block.code, f"{block}: not what was printed"
            elif block.language in RUNNABLE:
                capsys.readouterr()
                await _run(block, example, running)
    finally:
        await _close(example)


async def _run(block: Block, example: Example, running: Running) -> None:
    if block.language in {"sql", "setup"}:
        await asyncio.to_thread(_run_sql, block.code, example.dsn)
    elif block.word == "file":
        _save(block, example.folder)
    elif block.word == "worker":
        async with running(example.names[block.argument]):
            await _run_python(block, example)
    else:
        await _run_python(block, example)


def _run_sql(code: str, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(code.encode())


def _save(block: Block, folder: Path) -> None:
    """Write a module where the page says, and import it."""
    path = folder / block.argument
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.code, encoding="utf-8")
    importlib.invalidate_caches()
    importlib.import_module(".".join(Path(block.argument).with_suffix("").parts))


async def _run_python(block: Block, example: Example) -> None:
    """Run a block; those that wait run on the loop, the others in a thread, so that a worker can go on.

    Spark's pages run in this thread from first to last, as a program would: each thread has a session of its own.
    """
    code = _compiled(block)
    if code.co_flags & inspect.CO_COROUTINE:
        await eval(code, example.names)  # noqa: S307 - our own words
    elif PIPELINE in block.page.parents:
        eval(code, example.names)  # noqa: S307 - our own words
    else:
        await asyncio.to_thread(eval, code, example.names)


def _compiled(block: Block) -> CodeType:
    """The block's code, its line numbers those of the page."""
    source = "\n" * (block.line - 1) + block.code
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code: CodeType = compile(source, str(block.page), "exec", flags=flags, dont_inherit=True)
    return code


async def _close(example: Example) -> None:
    """Close what a program would close when it ends."""
    found = {id(value): value for module in example.modules() for value in vars(module).values()}
    for value in found.values():
        match value:
            case PgQueue():
                value.close()
                await value.aclose()
            case Engine():
                value.dispose()
            case AsyncEngine():
                await value.dispose()


def _lies_in(module: ModuleType, folder: Path) -> bool:
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    return any(place is not None and folder in Path(place).parents for place in places)
