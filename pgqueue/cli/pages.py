"""Listings of jobs, a page at a time: their options, and how a page is shown."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from pgqueue.cli.output import json_option, print_json, print_table
from pgqueue.cli.values import JOB_ID
from pgqueue.values.insight.now import SearchPage
from pgqueue.values.jobs.job import Job

F = TypeVar("F", bound=Callable[..., Any])


def page_options(verb: F) -> F:
    """The options of every list of jobs: the filters, the page, and JSON."""
    for add in (
        json_option,
        click.option(
            "--before",
            type=JOB_ID,
            metavar="ID",
            help="Only jobs with a lower id; for the next page give the last id of this one.",
        ),
        click.option("--limit", type=int, default=100, show_default=True, help="List at most this many."),
        click.option("--task", help="Only jobs of this task; * stands for any characters."),
        click.option("--queue", "queue_name", help="Only jobs of this queue; * stands for any characters."),
    ):
        verb = add(verb)
    return verb


def print_page(
    found: SearchPage,
    heads: Sequence[str],
    row: Callable[[Job], Sequence[object]],
    *,
    limit: int,
    as_json: bool,
) -> None:
    """Show a page, and how to get the next one."""
    if as_json:
        print_json(found.jobs)
    else:
        print_table(heads, [row(job) for job in found.jobs], empty="no jobs match")
    if found.looked_to is not None:
        click.echo(
            f"older jobs than {found.looked_to} were not looked at: --before {found.looked_to}", err=True
        )
    elif len(found.jobs) == limit and not as_json:
        click.echo(f"there may be more: --before {found.jobs[-1].id}", err=True)


def attempts(job: Job) -> str:
    """A job's spent attempts, and its allowed attempts."""
    return f"{job.attempts}/{job.max_attempts}"


def last_error(job: Job) -> str | None:
    """The error of a job's last failed attempt, in one line."""
    if not job.errors:
        return None
    error = job.errors[-1]
    return f"{error.type}: {error.message}".splitlines()[0]
