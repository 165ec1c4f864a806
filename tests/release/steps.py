"""The steps of a release: each prints one line with its time, and one that fails prints what it had to say."""

import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

PATIENCE = 900
"""Seconds that a command may take."""


class CheckFailed(Exception):
    """A file of the release is not as it must be."""

    def __init__(self, what: str, which: Sequence[str]) -> None:
        super().__init__("\n  ".join([f"{what}:", *which]))


def run(
    *words: str | Path,
    given: str | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> str:
    """What a command prints.

    Raises:
        subprocess.CalledProcessError: it ended with another exit code than 0.
        subprocess.TimeoutExpired: it did not end.
    """
    done = subprocess.run(  # noqa: S603 - our own words
        list(map(str, words)),
        input=given,
        cwd=cwd,
        env=env,
        text=True,
        check=True,
        capture_output=True,
        timeout=PATIENCE,
    )
    return done.stdout


@contextmanager
def step(words: str) -> Iterator[None]:
    """Print what was done in the block, and how long it took.

    Raises:
        click.ClickException: it failed, with the output of the command that failed.
    """
    started = time.monotonic()
    try:
        yield
    except subprocess.CalledProcessError as error:
        raise click.ClickException(
            f"failed: {words}\n{shlex.join(error.cmd)} ended with exit code {error.returncode}\n{error.stdout}{error.stderr}"
        ) from error
    except (CheckFailed, subprocess.TimeoutExpired) as error:
        raise click.ClickException(f"failed: {words}\n{error}") from error
    click.echo(f"{time.monotonic() - started:6.1f} s  {words}")
