"""What each role can do with the verbs of the shell, by a login of its own."""

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from cli.commands import SHOP, pgqueue
from dashboard.world import stored_alert
from schema.logins import GIVES, LOGINS, MONITORS, OPERATORS, PRODUCERS, READERS, SENDERS, login
from schema.scene import Scene, held_by_a_worker, interrupted, made_scene

from pgqueue.cli.main import main

scene = made_scene

VERBS: dict[str, tuple[set[str], Callable[[Scene], str]]] = {
    "alerts list": (MONITORS, lambda _: ""),
    "alerts silence": (OPERATORS, lambda s: f"'{stored_alert(s.own)}' --for 1h"),
    "alerts unsilence": (OPERATORS, lambda s: f"'{stored_alert(s.own)}'"),
    "alerts remove": (OPERATORS, lambda s: f"'{stored_alert(s.own)}'"),
    "audit list": (MONITORS, lambda _: ""),
    "audit resume": (OPERATORS, lambda s: str(interrupted(s))),
    "compare": (MONITORS, lambda _: "1h"),
    "dead list": (READERS, lambda _: ""),
    "dead retry": (OPERATORS, lambda s: str(s.dead())),
    "dead purge": (OPERATORS, lambda s: f"{s.dead()} --yes"),
    "enqueue": (PRODUCERS, lambda _: "shop.send '{\"order_id\": 1}'"),
    "jobs list": (READERS, lambda _: ""),
    "jobs show": (READERS, lambda s: str(s.world.dead)),
    "jobs stack": (OPERATORS, lambda s: f"{held_by_a_worker(s)} --timeout 0.01"),
    "jobs copy": (OPERATORS, lambda s: str(s.world.dead)),
    "jobs reschedule": (OPERATORS, lambda s: f"2031-01-01T00:00Z {s.scheduled()}"),
    "jobs cancel": (OPERATORS, lambda s: str(s.ready())),
    "jobs run-now": (OPERATORS, lambda s: str(s.scheduled())),
    "jobs move": (OPERATORS, lambda _: "--queue default --to other --yes"),
    "jobs reprioritise": (OPERATORS, lambda _: "--queue default --priority 2 --yes"),
    "limits list": (MONITORS, lambda _: ""),
    "limits set": (OPERATORS, lambda _: "queue:media --most 2"),
    "limits show": (MONITORS, lambda _: "queue:mail"),
    "limits recount": (MONITORS, lambda _: ""),
    "limits unset": (OPERATORS, lambda s: s.limit()),
    "limits move": (OPERATORS, lambda s: f"{s.limit_that_code_has_forgotten()} --to-none --yes"),
    "limits delete": (OPERATORS, lambda s: f"{s.limit_that_code_has_forgotten()} --yes"),
    "limits weigh": (OPERATORS, lambda _: '\'{"tenant": "acme"}\' 2'),
    "metrics": (MONITORS, lambda _: ""),
    "queues list": (MONITORS, lambda _: ""),
    "queues show": (MONITORS, lambda _: "mail"),
    "queues pause": (OPERATORS, lambda s: s.queue()),
    "queues close": (OPERATORS, lambda s: s.queue()),
    "queues resume": (OPERATORS, lambda _: "*"),
    "queues set": (OPERATORS, lambda s: f"{s.queue()} --backlog 9"),
    "retention set": (OPERATORS, lambda _: "--history 30d --yes"),
    "runs list": (MONITORS, lambda _: ""),
    "runs show": (MONITORS, lambda s: s.run()),
    "runs cancel": (OPERATORS, lambda s: f"{s.run()} --yes"),
    "schedules list": (READERS, lambda _: ""),
    "schedules show": (READERS, lambda _: "nightly"),
    "schedules next": (READERS, lambda _: "nightly"),
    "schedules add": (
        OPERATORS,
        lambda s: f"schedule{next(s.numbers)} shop.send --cron '0 4 * * *' --args '{{\"order_id\": 1}}'",
    ),
    "schedules pause": (OPERATORS, lambda s: f"'{s.schedule()}'"),
    "schedules resume": (OPERATORS, lambda s: f"'{s.schedule()}'"),
    "schedules fire": (OPERATORS, lambda s: f"'{s.schedule()}'"),
    "schedules backfill": (OPERATORS, lambda s: f"'{s.schedule()}' 2026-01-01T00:00Z 2026-01-03T00:00Z"),
    "schedules remove": (OPERATORS, lambda s: f"'{s.schedule()}'"),
    "signal": (SENDERS, lambda _: "key:k approved"),
    "status": (MONITORS, lambda _: ""),
    "top": (MONITORS, lambda _: "--once"),
    "why": (READERS, lambda s: str(s.world.ready)),
    "workers list": (MONITORS, lambda _: ""),
    "workers show": (MONITORS, lambda s: s.worker()),
    "workers set": (OPERATORS, lambda s: f"{s.worker()} --concurrency 2"),
    "workers quiet": (OPERATORS, lambda s: s.worker()),
    "workers resume": (OPERATORS, lambda s: s.worker()),
    "workers stop": (OPERATORS, lambda s: s.worker()),
    "workers restart": (OPERATORS, lambda s: s.worker()),
    "workflows list": (MONITORS, lambda _: ""),
    "workflows show": (MONITORS, lambda s: str(s.flow)),
    "workflows cancel": (OPERATORS, lambda s: str(s.new_flow())),
    "workflows retry": (OPERATORS, lambda s: str(s.cancelled_flow())),
}
"""Each verb that asks the database: the roles for which it works, and what else is typed."""
ENDS = (0, 1)
"""How a verb ends that works; 1: the worker of ``jobs stack`` does not answer."""
OTHERS = re.compile("adopt|bench|chaos|dashboard|demo|grants|keys|migrate|pipeline|shards|worker$")
"""Verbs of the owner and of the pipeline; those that start what is tested here in other ways; and those that ask nothing."""


def test_the_verbs_are_all_that_there_are() -> None:
    assert set(VERBS) == {one for one in _verbs(main, click.Context(main)) if not OTHERS.match(one)}


def _verbs(command: click.Command, context: click.Context, *path: str) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from _verbs(inner, click.Context(inner, parent=context), *path, name)


@pytest.mark.parametrize("role", LOGINS)
def test_each_verb_works_or_names_the_grant_that_is_missing(
    scene: Scene, dsn: str, role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.syspath_prepend(tmp_path)
    where, wrong = login(dsn, role), {}
    for verb, (able, typed) in VERBS.items():
        words = [*shlex.split(verb), *shlex.split(typed(scene))]
        result = pgqueue("--app", "shop:queue", *words, dsn=where)
        sys.modules.pop("shop", None)
        refused = result.exit_code == 2 and GIVES in result.stderr
        well = result.exit_code in ENDS if role in able else refused
        if not well:
            wrong[verb] = (result.exit_code, result.stderr[-300:])
    assert not wrong, wrong
