"""Rights: which role may do what with pgqueue's tables, in one table, and the SQL that gives and takes them.

Who may call a function of the schema is said in front of it, in ``sql/schema``: :func:`callers` reads it there.

``pgqueue grants`` prints this SQL, the guide shows it, and tests run it. PostgreSQL's own rights do all but one thing: that a
producer enqueues to named queues only is decided by a trigger, since the alternatives cost other programs something.
Row-level security refuses COPY to every role but the owner, so bulk enqueues would fail (docs/adr/notes.md).

The trigger is there only if a producer is limited. It is an AFTER trigger with a condition: COPY still writes rows in batches, and
a row of another role costs a lookup of two roles. PostgreSQL reads the condition anew for each statement, so it is short. It
asks for the role that inserts, and for the role of the session: the function ``pgqueue.enqueue`` inserts with the owner's rights.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from hashlib import sha256
from typing import Final, Literal, TypeAlias, get_args

from pgqueue.errors import InvalidOption
from pgqueue.store import columns
from pgqueue.store.catalogue import in_schema
from pgqueue.store.shipped import shipped
from pgqueue.values.hints import remedy
from pgqueue.values.jobs.options import check_one_queue, check_text

Role: TypeAlias = Literal["owner", "worker", "producer", "monitor", "reader", "operator"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
LONGEST_ROLE = 63
"""Bytes; PostgreSQL cuts longer names off."""


PUBLIC: Final = "public"
WORDS: Final = frozenset(
    {
        PUBLIC,
        "owner",
        "trigger",
        "worker",
        "operator",
        "producer",
        "monitor",
        "reader",
        "producer:signals",
        "producer:spark",
        "pipeline",
    }
)
GUARD: Final = "shard_guard"
"""The file whose functions only a shard has."""
_MADE = re.compile(
    r"^-- callers: (.+)\ncreate (?:or replace )?(?:function|aggregate) pgqueue\.(\w+)", re.MULTILINE
)


@cache
def callers(*, of_shards: bool = False) -> Mapping[str, frozenset[str]]:
    """The callers of each function, by its name.

    Args:
        of_shards: the functions that only a shard has, in place of those that every schema has.
    """
    found: dict[str, frozenset[str]] = {}
    for file in sorted(shipped("sql").joinpath("schema").iterdir(), key=lambda one: one.name):
        if file.name == f"{GUARD}.sql" if of_shards else file.name.endswith(".up.sql"):
            for said, name in _MADE.findall(file.read_text(encoding="utf-8")):
                found[name] = frozenset(said.split(", "))
    return found


def functions_for(caller: str) -> list[str]:
    """The functions that a caller may call and ``public`` may not, in the order in which they are made."""
    return [name for name, allowed in callers().items() if caller in allowed]


def _calling(caller: str) -> str:
    return "execute on function " + ", ".join(f"pgqueue.{name}" for name in functions_for(caller))


_ALL_ROWS = (
    "select, insert, update, delete on all tables in schema pgqueue.",
    "usage, select on all sequences in schema pgqueue.",
    "update on sequence pgqueue.idle_workers",
)
_SQL_ALONE = (_calling("producer"),)
_WRITTEN = (
    "queue, task, args, priority, status, run_at, created_at, max_attempts, unique_key, unique_until_started, "
    f"{', '.join(one.name for one in columns.SENT)}, expires_at, lane, in_lane, cost"
)
"""The columns that an enqueue writes. Not ``id``: a row whose id the sequence has not reached makes a later enqueue fail."""
_STATE = "select on pgqueue.alembic_version, pgqueue.compatibility"
"""What each program asks at its first connection."""
CONTENTS: Final = frozenset({"args", "errors", "result", "meta", "unique_key"})
"""The columns of jobs that a monitor may not read."""


def _without_contents(table: str, of: columns.Columns) -> str:
    return f"select ({', '.join(one.name for one in of if one.name not in CONTENTS)}) on pgqueue.{table}"


_MONITOR = (
    _STATE,
    _without_contents("jobs", columns.JOBS),
    _without_contents("job_history", columns.HISTORY),
    "select (ctid) on pgqueue.job_history",  # to count what ended lately, its last pages are read
    _without_contents("dead_jobs", columns.DEAD),
    _without_contents("all_jobs", columns.ALL_JOBS),
    "select on pgqueue.queues, pgqueue.workers, pgqueue.known_tasks, pgqueue.unknown_tasks, pgqueue.lost_workers, pgqueue.limits, pgqueue.rates",
    "select on pgqueue.former_workers, pgqueue.task_contracts",
    "select on pgqueue.waits",
    "select on pgqueue.flows, pgqueue.edges, pgqueue.node_counts, pgqueue.alerts, pgqueue.audit, pgqueue.lake_days",
    "select (task, keys, cost, ordered) on pgqueue.limited_tasks",
    "select (id, flow_id, parent_id, place, name, kind, state, waits_for, task, job_id) on pgqueue.nodes",
    (
        "select (name, module, created_at, task, queue, cron, every, at, timezone, anchor, start_at, end_at, gap, repeat, jitter, "
        "missed, missed_limit, tolerance, overlap, next_at, paused_at, failed_at, error) on pgqueue.schedules"
    ),
    "select on pgqueue.schedule_ticks, pgqueue.deploys, pgqueue.series_state, pgqueue.series_written",
    "select on pgqueue.series_minutes, pgqueue.series_hours, pgqueue.series_days",
    "select on pgqueue.insight_minutes, pgqueue.insight_minutes_all, pgqueue.insight_hours, pgqueue.insight_hours_all",
    "select on pgqueue.series_depths, pgqueue.series_depth_hours, pgqueue.retention, pgqueue.sink_writes",
    _calling("monitor"),
)
RIGHTS: Final[Mapping[Role, Sequence[str]]] = {
    "worker": (*_ALL_ROWS, _calling("worker")),
    "producer": (
        *_SQL_ALONE,
        _STATE,
        f"insert ({_WRITTEN}), select (id, priority, max_attempts) on pgqueue.jobs",
        "select (name, priority, max_attempts, closed_at, backlog, when_full) on pgqueue.queues",
        "select on sequence pgqueue.idle_workers",
    ),
    "monitor": _MONITOR,
    "reader": (
        *_MONITOR,
        "select on pgqueue.all_jobs, pgqueue.jobs, pgqueue.job_history, pgqueue.dead_jobs",
        "select on pgqueue.nodes, pgqueue.schedules, pgqueue.notes, pgqueue.stacks",
        "select on pgqueue.sink_rejected, pgqueue.sink_refused",
    ),
    "operator": (*_ALL_ROWS, _calling("operator")),
}
"""What follows ``grant``, for each role but the owner."""
_OWNERS = (
    "all on pgqueue.callback_key",
    "insert, update, delete on pgqueue.alembic_version, pgqueue.compatibility",
)
TAKEN: Final[Mapping[Role, Sequence[str]]] = {
    "worker": _OWNERS,
    "operator": (*_OWNERS, "update, delete on pgqueue.audit", "insert on pgqueue.workers"),
}
"""What a role has not, although it has the rights before."""
GIVEN_BACK: Final[Mapping[Role, Sequence[str]]] = {
    "operator": ("update (jobs, counts, after_id, later, ended_at) on pgqueue.audit",)
}
EXTRAS: Final[Mapping[str, Sequence[str]]] = {
    "unique": (
        "insert (id), select, update on pgqueue.jobs",
        "select, insert, update, delete on pgqueue.unique_holds",
        "usage on sequence pgqueue.jobs_id_seq",
    ),
    "when_full": (
        "select (queue, status, lane, in_lane, worker_id) on pgqueue.jobs",
        "select on pgqueue.limits",
    ),
    "flows": (
        "insert (id, flags), select (unique_key) on pgqueue.jobs",
        "usage on sequence pgqueue.jobs_id_seq, pgqueue.nodes_id_seq",
        "select, insert, update on pgqueue.flows, pgqueue.nodes, pgqueue.edges, pgqueue.node_counts, pgqueue.waits",
    ),
    "signals": (_calling("producer:signals"),),
    "spark": (
        "select, insert, update, delete on pgqueue.sink_attempts, pgqueue.sink_rows, pgqueue.sink_writes",
        "select, insert, delete on pgqueue.sink_rejected, pgqueue.sink_refused",
        _calling("producer:spark"),
    ),
}
"""What a producer needs in addition to use these by Python. All but ``signals`` let it read, or change, jobs of every queue."""
FOR_NAMED_QUEUES: Final = frozenset({"signals"})


def grant_statements(
    role: Role,
    to: str,
    *,
    schema: str = "pgqueue",
    queues: Collection[str] | None = None,
    also: Collection[str] = (),
    sql_alone: bool = False,
) -> list[str]:
    """The statements that give a role its rights.

    Args:
        role: which.
        to: the PostgreSQL role that gets them; it exists.
        schema: where the tables are.
        queues: of a producer: the only queues to which it may enqueue; None: any.
        also: of a producer: names of :data:`EXTRAS`.
        sql_alone: of a producer: it enqueues by SQL, so it reads nothing, not even ids.

    Raises:
        InvalidOption: a name is none, or options contradict each other.
    """
    _check(role, to, queues, also, sql_alone=sql_alone)
    name = quote_name(to)
    if role == "owner":
        return [f"create schema if not exists {schema} authorization {name}"]
    rights = [*(_SQL_ALONE if sql_alone else RIGHTS[role]), *(right for one in also for right in EXTRAS[one])]
    found = ["usage on schema pgqueue.", *dict.fromkeys(rights)]
    statements = [f"grant {_in(schema, right)} to {name}" for right in found]
    statements += [f"revoke {_in(schema, right)} from {name}" for right in TAKEN.get(role, ())]
    statements += [f"grant {_in(schema, right)} to {name}" for right in GIVEN_BACK.get(role, ())]
    if not sql_alone:
        statements.append(_of_a_shard(name, schema, enters=role not in {"monitor", "reader"}))
    if queues is not None:
        statements += _limit(to, schema, queues)
    return statements


def revoke_statements(role: Role, to: str, *, schema: str = "pgqueue") -> list[str]:
    """The statements that take all rights from a role; arguments as for :func:`grant_statements`.

    Raises:
        InvalidOption: a name is none, or the role is the owner, whose rights are those of the tables.
    """
    _check(role, to, None, (), sql_alone=False)
    if role == "owner":
        raise InvalidOption(
            "grants owner --revoke: the owner's rights come with the tables; give them away with `alter table ... owner to`"
        )
    name = quote_name(to)
    kinds = ("tables", "sequences", "functions")
    statements = [f"revoke all on all {kind} in schema {schema} from {name}" for kind in kinds]
    statements.append(f"revoke usage on schema {schema} from {name}")
    return [*statements, *(_unlimit(to, schema) if role == "producer" else ())]


def quote_name(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as SQL has it; the functions and triggers that are made here depend on no setting of backslashes."""
    escaped = text.replace("'", "''").replace("\\", "\\\\")
    return f"E'{escaped}'" if "\\" in text else f"'{escaped}'"


def _of_a_shard(name: str, schema: str, *, enters: bool) -> str:
    """Where the database is a shard, a program asks which it is; one that enqueues asks which keys live there."""
    tag = _tag(name)
    entering = f"\n        grant execute on function {schema}.enter_shard(text, boolean) to {name};"
    return f"""do {tag} begin
    if to_regclass('{schema}.shard') is not null then
        grant select on {schema}.shard to {name};{entering if enters else ""}
    end if;
end {tag}"""


def _in(schema: str, right: str) -> str:
    return in_schema(right, schema).replace(f"schema {schema}.", f"schema {schema}")


def _check(
    role: str, to: str, queues: Collection[str] | None, also: Collection[str], *, sql_alone: bool
) -> None:
    if role not in ROLES:
        raise InvalidOption(f"there is no role {role!r:.80}: {remedy(role, ROLES)}")
    check_text("the role's name", to)
    if not 1 <= len(to.encode()) <= LONGEST_ROLE:
        raise InvalidOption(f"the role's name {to!r:.80}: use a name of 1 to {LONGEST_ROLE} bytes")
    if (queues is not None or also or sql_alone) and role != "producer":
        raise InvalidOption(f"grants {role}: --queues, --also and --sql-only are about a producer")
    for one in also:
        if one not in EXTRAS:
            raise InvalidOption(f"--also {one!r:.80}: {remedy(one, sorted(EXTRAS))}")
    if queues is None:
        return
    if not queues:
        raise InvalidOption("--queues: name a queue")
    for queue in queues:
        check_one_queue("queue", queue)
    wide = sorted({*also} - FOR_NAMED_QUEUES)
    if wide:
        raise InvalidOption(
            f"--also {','.join(wide)} lets a producer read or change jobs of every queue, so it cannot go with --queues; "
            "the SQL function enqueue needs no such right for unique keys"
        )


def _names(to: str, schema: str) -> tuple[str, str]:
    """Return the names of the trigger and of its function."""
    name = f"producer_{sha256(to.encode()).hexdigest()[:16]}"
    return name, f"{schema}.{name}"


def _limit(to: str, schema: str, queues: Collection[str]) -> list[str]:
    trigger, function = _names(to, schema)
    role, named = f"to_regrole({literal(quote_name(to))})::oid", sorted({*queues})
    array = literal("{" + ",".join(f'"{_escape(queue)}"' for queue in named) + "}")
    listed = literal(", ".join(named))
    session = "coalesce(nullif(current_setting('role'), 'none')::name, session_user)"
    tag = _tag(to, *queues)
    return [
        f"""create or replace function {function}() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as {tag}
declare
    one name;
    owner constant oid := (select relowner from pg_class where oid = tg_relid);
begin
    foreach one in array array[current_user::name, {session}] loop
        if pg_has_role(one, {role}, 'usage') and not pg_has_role(one, owner, 'usage') then
            raise insufficient_privilege using
                message = format('role %s may not enqueue to queue %L', one, new.queue),
                hint = 'Its queues: ' || {listed} || '. `pgqueue grants producer` changes them.';
        end if;
    end loop;
    return null;
end {tag}""",
        f"drop trigger if exists {trigger} on {schema}.jobs",
        f"""create trigger {trigger} after insert on {schema}.jobs for each row
    when (new.queue <> all ({array}::text[])
          and (pg_has_role({role}, 'usage') or pg_has_role({session}, {role}, 'usage')))
    execute function {function}()""",
    ]


def _escape(queue: str) -> str:
    """Return a name as a text of an array has it."""
    return queue.replace("\\", "\\\\").replace('"', '\\"')


def _unlimit(to: str, schema: str) -> list[str]:
    trigger, function = _names(to, schema)
    return [f"drop trigger if exists {trigger} on {schema}.jobs", f"drop function if exists {function}()"]


def _tag(*texts: str) -> str:
    """A dollar quote that occurs in none of these texts."""
    return next(tag for n in range(1000) if not any((tag := f"$limit{n or ''}$") in text for text in texts))
