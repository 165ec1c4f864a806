"""Compares the table of transitions with what happens to jobs in the databases of tests.

Triggers in these databases note each change of a job's status, and each row that comes or goes. What the package's own
statements and functions did is kept, and what a test did by hand is left out. At the end of the run each transition that was
seen has to stand in the table; where all tests of ``FOLDERS`` have run and passed, each of the table has to be seen, too.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from pgqueue.store.column_lists import with_lists
from pgqueue.values.jobs.job import BEGINNINGS, TRANSITIONS, JobState

Transition = tuple[str, str]

SQL = Path(__file__).parents[1] / "sql"
RUNNING = str(JobState.RUNNING)
ENQUEUED = "enqueued"
"""Stands for the state of a job that was not there before."""
TABLE: frozenset[Transition] = frozenset(
    {(ENQUEUED, str(state)) for state in BEGINNINGS}
    | {(str(before), str(after)) for before, all_after in TRANSITIONS.items() for after in all_after}
)
FOLDERS = (
    "store",
    "worker",
    "flows",
    "limits",
    "queues",
    "bulk",
    "signals",
    "batches",
    "crashes",
    "schedules",
    "model",
)
"""The tests that show every transition."""
IN_THE_SCHEMA = re.compile(r'function pgqueue\.|SQL function "')
COMPARED = 160
"""Characters by which a statement is known again, since a log of whole statements would slow down the tests."""

TABLES = """
create schema watched;
create table watched.changes (
    number bigint generated always as identity,
    transaction xid8 not null default pg_current_xact_id(),
    place text not null,
    was text,
    became text,
    ids bigint[] not null,
    statement text not null default left(current_query(), 600),
    stack text not null
) with (autovacuum_enabled = false, toast.autovacuum_enabled = false);
"""
WATCHED = """
create function watched.{name}() returns trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp {plan} as $$
declare
    stack text;
begin
    get diagnostics stack = pg_context;
    insert into watched.changes (stack, place, was, became, ids) select stack, {noted};
    return null;
end $$;
create trigger watched_{name} after {event} referencing {rows} for each statement execute function watched.{name}();
"""
"""Each trigger has a small function of its own: every session compiles those that it needs."""
OLD, NEW = "old table as rows_before", "new table as rows_after"
FORMER_ID = r"""case when errors -> -1 ->> 'former_id' ~ '^\d{1,18}$' then (errors -> -1 ->> 'former_id')::bigint else id end"""
"""A job whose id is taken among the dead jobs gets a new one there."""
BOTH = "rows_before as before join rows_after as after using (id) where before.status <> after.status"
TRIGGERS = (
    ("added", "insert on pgqueue.jobs", NEW, "'jobs', null, status, array_agg(id) from rows_after group by status"),
    ("changed", "update on pgqueue.jobs", f"{OLD} {NEW}",
     f"'jobs', before.status, after.status, array_agg(id) from {BOTH} group by before.status, after.status"),
    ("removed", "delete on pgqueue.jobs", OLD, "'jobs', status, null, array_agg(id) from rows_before group by status"),
    ("ended", "insert on pgqueue.job_history", NEW, "'ended', null, outcome, array_agg(id) from rows_after group by outcome"),
    ("died", "insert on pgqueue.dead_jobs", NEW, f"'ended', null, 'dead', array_agg({FORMER_ID}) from rows_after having count(*) > 0"),
    ("revived", "delete on pgqueue.dead_jobs", OLD, "'ended', 'dead', null, array_agg(id) from rows_before having count(*) > 0"),
)  # fmt: skip
"""The triggers: name, event, rows, and what is noted of them."""
NO_LOOP = "set enable_nestloop = off"
"""A plan is made once a session, for as few rows as the first statement changed: of a join it has no nested loop."""
HIDDEN = """
do $$ begin
    if current_setting('is_superuser')::boolean then
        update pg_trigger set tgisinternal = true where tgname ~ '^watched_';
    end if;
end $$;
"""
"""So that dumps, and tests that compare what two schemas consist of, leave them out. Only a superuser may do this."""
NOTED = """
select transaction::text::bigint, place, was, became, ids, statement, stack from watched.changes
where transaction >= %s::text::xid8 order by transaction, number
"""


class Change(NamedTuple):
    """What one statement did to jobs: it added or removed their rows, or changed their status.

    Attributes:
        transaction: its number.
        place: ``jobs``, or ``ended`` for the history and the dead jobs.
        was: their status before; None: their rows were not there.
        became: their status after; None: their rows are gone.
        ids: which jobs.
        statement: what a client had sent.
        stack: the functions in which it was done, the innermost first.
    """

    transaction: int
    place: str
    was: str | None
    became: str | None
    ids: list[int]
    statement: str
    stack: str

    @property
    def by_hand(self) -> bool:
        """Whether a test wrote the statement."""
        return not IN_THE_SCHEMA.search(self.stack) and _key(self.statement) not in _own_statements()

    @property
    def by(self) -> str:
        """The file of the statement, or the beginning of one that calls a function of the schema."""
        key = _key(self.statement)
        return _own_statements().get(key, key)


class Seen:
    """The transitions that were seen, and what did each."""

    def __init__(self) -> None:
        self.examples: dict[Transition, str] = {}

    def gather(self, dsn: str, since: int = 0) -> None:
        """Add what a database has noted; one that cannot be read, because a test has broken it, is left out.

        Args:
            dsn: which database.
            since: the number of the first transaction that counts.
        """
        try:
            with psycopg.connect(dsn) as connection:
                changes = [Change(*row) for row in connection.execute(NOTED, (since,))]
        except psycopg.Error:
            return
        for _, together in groupby(changes, key=lambda change: change.transaction):
            for transition, by in transitions_of(list(together)):
                self.examples.setdefault(transition, by)


def install(dsn: str) -> None:
    """Put the triggers into a database that has the schema ``pgqueue``."""
    with psycopg.connect(dsn) as connection:
        connection.execute(TABLES)
        for name, event, rows, noted in TRIGGERS:
            plan = NO_LOOP if name == "changed" else ""
            connection.execute(
                WATCHED.format(name=name, plan=plan, noted=noted, event=event, rows=rows).encode()
            )
        connection.execute(HIDDEN)


def transitions_of(changes: list[Change]) -> Iterator[tuple[Transition, str]]:
    """What the changes of one transaction were for each job, and what did it.

    A job that is blocked, or given its lane, in the transaction that enqueues it has been enqueued as blocked: no other
    transaction sees it before.
    """
    by_hand = {job for change in changes if change.by_hand for job in change.ids}
    of_job: dict[int, list[Change]] = {}
    for change in changes:
        for job in change.ids:
            if job not in by_hand:
                of_job.setdefault(job, []).append(change)
    seen = set()
    for one in of_job.values():
        key = tuple(map(id, one))
        if key not in seen:  # jobs to which the same statements happened
            seen.add(key)
            yield from _of_one(one)


def _of_one(changes: list[Change]) -> Iterator[tuple[Transition, str]]:
    added = next((one for one in changes if one.place == "jobs" and one.was is None), None)
    removed = next((one for one in changes if one.place == "jobs" and one.became is None), None)
    ended = next((one for one in changes if one.place == "ended" and one.was is None), None)
    revived = next((one for one in changes if one.place == "ended" and one.became is None), None)
    updated = [one for one in changes if one.was is not None and one.became is not None]
    if added is not None:
        state = str(added.became)
        while updated and updated[0].was == state and updated[0].became != RUNNING:
            state = str(updated.pop(0).became)
        yield (("dead" if revived else ENQUEUED), state), added.by
    yield from (((str(one.was), str(one.became)), one.by) for one in updated)
    if removed is not None and ended is not None:
        yield (str(removed.was), str(ended.became)), removed.by


def _key(statement: str) -> str:
    """The beginning of a statement, however the driver names its parameters."""
    without = re.sub(r"%\(\w+\)s|\$\d+", "?", statement.replace("%%", "%"))
    return " ".join(without.split())[:COMPARED]


@cache
def _own_statements() -> dict[str, str]:
    found = {}
    for path in sorted(SQL.rglob("*.sql")):
        text = with_lists(re.sub(r"\A(--.*\n)+", "", path.read_text(encoding="utf-8")))
        found[_key(text)] = str(path.relative_to(SQL.parent))
    return found


def differences(examples: Mapping[Transition, str], *, is_whole: bool) -> list[str]:
    """How the transitions that were seen differ from the table, a sentence each.

    Args:
        examples: those that were seen, and what did each.
        is_whole: whether all tests have run that show every transition.
    """
    unknown = [
        f"{before} -> {after} is not in the table, and was made by {examples[before, after]}"
        for before, after in sorted(examples.keys() - TABLE)
    ]
    missing = sorted(TABLE - examples.keys()) if is_whole else []
    return unknown + [f"{before} -> {after} is in the table, and no job made it" for before, after in missing]


class Comparison:
    """Compares at the end of a run what all its processes have seen with the table."""

    def __init__(self, config: pytest.Config) -> None:
        """Begin with nothing seen.

        Args:
            config: that of this process.
        """
        self.seen = Seen()
        self._config = config
        self._wrong: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add what a process of xdist has seen."""
        for before, after, by in getattr(node, "workeroutput", {}).get("transitions", ()):
            self.seen.examples.setdefault((before, after), by)

    @pytest.hookimpl(trylast=True)  # the databases are gone by then
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Hand over what was seen, or compare it, and fail the run that saw something else."""
        examples = self.seen.examples
        if hasattr(self._config, "workerinput"):
            handed = self._config.workeroutput  # type: ignore[attr-defined]  # xdist adds it
            handed["transitions"] = [(*one, by) for one, by in examples.items()]
            return
        self._wrong = differences(examples, is_whole=exitstatus == pytest.ExitCode.OK and self._is_whole())
        if self._wrong and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._wrong:
            terminalreporter.section("transitions of jobs (tests/transitions.py)", red=True, bold=True)
            for line in self._wrong:
                terminalreporter.line(line)

    def _is_whole(self) -> bool:
        """Whether all tests of ``FOLDERS`` were to run."""
        option = self._config.option
        if option.collectonly or option.keyword or option.markexpr or option.deselect:
            return False
        given = [Path(one).absolute() for one in self._config.args]
        wanted = [Path(__file__).parent / name for name in FOLDERS]
        return all(any(folder.is_relative_to(one) for one in given) for folder in wanted)
