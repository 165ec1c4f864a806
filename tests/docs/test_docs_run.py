"""Every python and sql block of the words runs, page by page, against a real database."""

import ast
import asyncio
import importlib
import inspect
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import psycopg
import pytest
from docs.pages import DOCS, ROOT, Block, blocks, page_id, pages
from running import Running
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from pgqueue import PgQueue, Worker

RUNNABLE = {"python", "sql", "setup"}
PIPELINE = DOCS / "pipeline"
SCHEDULERS = {PIPELINE / "airflow.md", PIPELINE / "dagster.md"}
"""Their blocks need large libraries; ``tests/spark/test_spark_schedulers.py`` runs them with stand-ins for these."""
RUN = [
    page
    for page in pages()
    if page not in SCHEDULERS and any(block.language in RUNNABLE for block in blocks(page))
]
START = [
    ROOT / "README.md",
    *(DOCS / link for link in re.findall(r"\]\((start/[\w-]+\.md)\)", (DOCS / "README.md").read_text())),
]
"""The pages that a newcomer follows, in the order of the index."""


@dataclass(slots=True)
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

    def begin(self) -> None:
        """Begin as a new process does: with no names, and without the modules of the folder."""
        self.forget()
        self.module = sys.modules["example"] = ModuleType("example")

    def forget(self) -> None:
        for name in [one.__name__ for one in self.modules()]:
            sys.modules.pop(name, None)


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
    shared.begin()
    yield shared
    shared.forget()


@pytest.mark.parametrize("page", [page for page in RUN if PIPELINE not in page.parents], ids=page_id)
async def test_the_blocks_of_a_page_run_in_order_and_print_what_it_says(
    page: Path, example: Example, running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    await _run_page(page, example, running, capsys)


@pytest.mark.timeout(600)
async def test_the_start_pages_can_be_followed_in_order_on_one_database_and_in_one_folder(
    example: Example, running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    before: dict[Path, set[str]] = {}
    for page in START:
        example.begin()
        await _run_page(page, example, running, capsys)
        after = _defined(example.folder)
        lost = {path: names - after[path] for path, names in before.items() if names - after[path]}
        assert lost == {}, f"{page_id(page)} saves a file without what the pages before put there"
        before = after


# py4j closes a connection to Java while a file made of it is open, and Python warns when both are collected.
@pytest.mark.filterwarnings(
    r"ignore:Exception ignored in. <socket\.socket \[closed\] fd=:pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.timeout(600)
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
    elif block.word == "worker" and PIPELINE in block.page.parents:
        with _working(_named(example, block.argument)):
            await _run_python(block, example)
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


@contextmanager
def _working(queue: PgQueue) -> Iterator[None]:
    """A worker in a thread of its own: blocks of Spark's pages hold up this one."""
    started: list[tuple[asyncio.AbstractEventLoop, Worker]] = []
    ready = threading.Event()

    async def work() -> None:
        worker = Worker(queue, concurrency=20)
        started.append((asyncio.get_running_loop(), worker))
        ready.set()
        await worker.run()

    thread = threading.Thread(target=asyncio.run, args=(work(),))
    thread.start()
    try:
        yield
    finally:
        ready.wait()
        loop, worker = started[0]
        loop.call_soon_threadsafe(worker.stop)
        thread.join()


def _named(example: Example, name: str) -> PgQueue:
    """The queue that a block names: of the page, or of a module that it has saved."""
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute) if module else example.names[name]
    assert isinstance(found, PgQueue)
    return found


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


def _defined(folder: Path) -> dict[Path, set[str]]:
    """The functions and classes of each file."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {
        path: {one.name for one in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(one, kinds)}
        for path in folder.rglob("*.py")
    }


def _lies_in(module: ModuleType, folder: Path) -> bool:
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    return any(place is not None and folder in Path(place).parents for place in places)
