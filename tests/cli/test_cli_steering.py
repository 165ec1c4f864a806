"""Each command that changes what others see says who did it and why; which commands these are is found in their code."""

import contextlib
import dis
import inspect
import re
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

import click
import pytest
from cli.commands import pgqueue, printed

from pgqueue import PgQueue
from pgqueue.app.alerts import Alerts
from pgqueue.app.bulk import DeadSelection, LiveSelection
from pgqueue.app.control import QueueControl
from pgqueue.app.flows.flows import Flows
from pgqueue.app.limits import LimitControl
from pgqueue.app.schedules.schedules import Schedules
from pgqueue.app.workers import Workers
from pgqueue.cli.main import main
from pgqueue.store.audit import reason
from pgqueue.store.pipeline import lake as lake_plans
from pgqueue.store.queues import queues as queue_plans

ASKED_OF = (
    PgQueue,
    QueueControl,
    LiveSelection,
    DeadSelection,
    Workers,
    Schedules,
    LimitControl,
    Flows,
    Alerts,
)
PARTS = {"alerts", "control", "schedules", "store", "workers"}
OF_CONTAINERS = {name for kind in (list, dict, set) for name in vars(kind)} | {"close", "quiet"}
"""Names that values have, too, such as `remove` of a list and `quiet` of a worker's status, count where they are asked of a part of the queue."""
NO_STEERING = {("enqueue",), ("worker",), ("pipeline", "run"), ("shards", "init")}
"""The first adds a job, as any program does; the next two stop processes of their own; the last prepares empty databases."""


def names_an_operator() -> set[str]:
    """The methods, and plans, that take the name of who does it."""
    owners = [*ASKED_OF, queue_plans, lake_plans]
    found = {
        name
        for owner in owners
        for name, value in vars(owner).items()
        if isinstance(value, FunctionType) and "by" in inspect.signature(value).parameters
    }
    return {name for name in found if not name.startswith("_")} | {"audited"}


def commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def called_by(function: Any) -> set[str]:
    """The attributes that a function and the functions of its module, and of `functools.partial` there, ask for."""
    function = inspect.unwrap(function)
    module, found, seen = sys.modules[function.__module__], set[str](), set[str]()
    left: list[CodeType] = [function.__code__]
    while left:
        code = left.pop()
        left += [one for one in code.co_consts if isinstance(one, CodeType)]
        before = ""
        for step in dis.get_instructions(code):
            if step.opname in {"LOAD_ATTR", "LOAD_METHOD"}:
                if step.argval not in OF_CONTAINERS or before in PARTS:
                    found.add(str(step.argval))
                before = str(step.argval)
            elif step.opname == "LOAD_GLOBAL":
                before = str(step.argval)
                value = getattr(module, str(step.argval), None)
                if isinstance(value, FunctionType) and step.argval not in seen:
                    seen.add(str(step.argval))
                    found.add(value.__name__)
                    if value.__module__ == module.__name__:
                        left.append(value.__code__)
    return found


COMMANDS = dict(commands(main))
STEERING = {
    path: command
    for path, command in COMMANDS.items()
    if command.callback is not None
    and called_by(command.callback) & names_an_operator()
    and path not in NO_STEERING
}


def options(command: click.Command) -> set[str]:
    return {name for param in command.params for name in param.opts}


def test_commands_that_steer_are_found() -> None:
    for words in ("queues pause", "queues resume", "queues set", "jobs cancel", "jobs run-now", "dead retry", "dead purge",
                  "limits weigh", "workers stop", "schedules add", "workflows retry", "alerts silence", "audit resume"):  # fmt: skip
        assert tuple(words.split()) in STEERING
    assert ("jobs", "list") not in STEERING


@pytest.mark.parametrize("path", STEERING, ids=" ".join)
def test_a_command_that_steers_is_told_who_and_why(path: tuple[str, ...]) -> None:
    assert {"--by", "--why"} <= options(STEERING[path])


@pytest.mark.parametrize("path", sorted(set(COMMANDS) - set(STEERING)), ids=" ".join)
def test_a_command_that_does_not_steer_is_not(path: tuple[str, ...]) -> None:
    assert "--why" not in options(COMMANDS[path])


def said(dsn: str) -> list[tuple[str, str, str | None]]:
    """The action, who did it and why, of each line of the audit, oldest first."""
    lines = printed(pgqueue("audit", "list", "--json", dsn=dsn))
    return [(one["action"], one["by"], (one["details"] or {}).get("why")) for one in reversed(lines)]


def test_the_audit_keeps_who_and_why(dsn: str) -> None:
    queue = PgQueue(dsn)
    send = queue.task(name="send")(lambda: None)
    with contextlib.closing(queue):
        first, _ = send.enqueue(), send.enqueue()
    who = ("--by", "ann", "--why", "release 12")
    for words in (
        ["queues", "pause", "default"],
        ["queues", "resume", "default"],
        ["queues", "set", "default", "--priority", "3"],
        ["jobs", "cancel", str(first.id)],
        ["jobs", "cancel", "--all", "--yes"],
        ["limits", "set", "queue:default", "--most", "3"],
        ["limits", "weigh", '{"tenant": "acme"}', "3"],
    ):
        assert pgqueue(*words, *who, dsn=dsn).exit_code == 0, words
    actions = ["pause", "resume", "set", "cancel", "cancel", "limit set", "share weighed"]
    assert said(dsn) == [(action, "ann", "release 12") for action in actions]
    assert "paused" not in pgqueue("queues", "show", "default", dsn=dsn).stdout


def test_without_them_the_audit_names_the_user_and_no_reason(dsn: str) -> None:
    assert pgqueue("queues", "pause", "mail", "--why", "once", dsn=dsn).exit_code == 0
    assert pgqueue("queues", "resume", "mail", dsn=dsn).exit_code == 0
    (_, by, first), (_, _, second) = said(dsn)
    assert re.fullmatch(r".+@.+", by)
    assert (first, second) == ("once", None)


def test_a_command_that_is_refused_leaves_no_reason_behind(dsn: str) -> None:
    assert pgqueue("queues", "pause", "--why", "once", dsn=dsn).exit_code == 2  # which queue?
    assert reason() is None


@pytest.mark.parametrize("option", ["--by", "--why"])
def test_what_postgresql_cannot_store_is_refused_in_words(dsn: str, option: str) -> None:
    assert pgqueue("queues", "pause", "mail", dsn=dsn).exit_code == 0
    said = pgqueue("queues", "resume", "mail", option, "not \udcff text", dsn=dsn)
    assert (said.exit_code, option.strip("-") in said.stderr) == (2, True)
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize("option", ["--by", "--why"])
def test_a_name_or_a_reason_that_no_table_can_show_is_refused_and_nothing_is_done(
    dsn: str, option: str
) -> None:
    said = pgqueue("queues", "pause", "mail", option, "x" * 1001, dsn=dsn)
    assert (
        said.exit_code,
        f"{option.strip('-')} has 1,001 characters: use 1,000 at most" in said.stderr,
    ) == (2, True)
    assert pgqueue("audit", "list", "--json", dsn=dsn).stdout.strip() == "[]"
    assert "paused" not in pgqueue("queues", "list", "--json", dsn=dsn).stdout.replace("paused_", "")


def test_an_operation_with_a_reason_is_continued(dsn: str) -> None:
    queue = PgQueue(dsn)
    send = queue.task(name="send")(lambda: None)
    with contextlib.closing(queue):
        send.enqueue()
        assert pgqueue("jobs", "cancel", "--all", "--yes", "--why", "no use", dsn=dsn).exit_code == 0
        with queue.database.pooled() as connection:
            ((number,),) = connection.execute(
                "update pgqueue.audit set ended_at = null returning id"
            ).fetchall()
        assert pgqueue("audit", "resume", str(number), "--by", "bob", dsn=dsn).exit_code == 0
    assert [one[:2] for one in said(dsn)][-1] == ("continue", "bob")
