"""Example apps as their users run them: a server and workers, each a process of its own."""

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import programs

T = TypeVar("T")

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
LIBRARIES = ("flask", "flask_sqlalchemy", "fastapi", "uvicorn")
PATIENCE = 30.0
ADDRESS = re.compile(
    r"unning on (http://[\d.]+:\d+)"
)  # "Running" or "Uvicorn running"; the port is its own choice
SETTINGS = (
    "PGQUEUE_DSN",
    "PGQUEUE_DIRECT_DSN",
    "PGQUEUE_APP",
    "PGQUEUE_TESTING",
    "DATABASE_URL",
    "FLASK_APP",
)


def until(look: Callable[[], T | None]) -> T:
    """Look again and again until there is something to see."""
    deadline = time.monotonic() + PATIENCE
    while not (seen := look()):
        assert time.monotonic() < deadline, f"nothing to see after {PATIENCE} seconds"
        time.sleep(0.02)
    return seen


class Process:
    """A process that was started; what it prints goes to a file."""

    def __init__(self, popen: "subprocess.Popen[str]", log: Path) -> None:
        self._popen = popen
        self._log = log

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def said(self, pattern: str | re.Pattern[str]) -> re.Match[str]:
        def look() -> re.Match[str] | None:
            ended = self._popen.poll() is not None
            found = re.search(pattern, self.log())
            assert found or not ended, f"ended without saying {pattern!r}:\n{self.log()}"
            return found

        return until(look)

    def address(self) -> str:
        """Where it serves."""
        return self.said(ADDRESS)[1]

    def stopped(self) -> int:
        self._popen.terminate()
        return self._popen.wait(PATIENCE)


def environment(**settings: str) -> Mapping[str, str]:
    """Our own environment, with these settings and none of those that may be in it."""
    return {name: value for name, value in os.environ.items() if name not in SETTINGS} | settings


@contextmanager
def started(*command: str, folder: Path, log: Path, **settings: str) -> Iterator[Process]:
    """Run ``python -m ...`` in a folder for the length of a block."""
    with (
        log.open("wb") as output,
        programs.Program(
            ["-m", *command],
            libraries=LIBRARIES,
            cwd=folder,
            env=environment(**settings),
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as popen,
    ):
        try:
            yield Process(popen, log)
        finally:
            popen.kill()


def ran(*command: str, folder: Path, **settings: str) -> "subprocess.CompletedProcess[str]":
    """Run ``python -m ...`` in a folder to its end."""
    return programs.ran(
        ["-m", *command], cwd=folder, env=environment(**settings), timeout=PATIENCE, libraries=LIBRARIES
    )


def sqlalchemy_url(dsn: str) -> str:
    """The DSN as SQLAlchemy writes it."""
    return dsn.replace("postgresql://", "postgresql+psycopg://")
