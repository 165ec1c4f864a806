"""Where each plan goes in a queue of several databases, decided by the plan's name and arguments: :data:`ROUTES`.

- a new job goes to the home of its key (:mod:`pgqueue.values.shards`); one without a key to any shard that answers;
- what operators say of queues and limits is said to every shard; what they say of schedules, to the first;
- some looks are put together of all shards. A shard that does not answer is left out, with a line in the log;
- a plan about one job or flow goes to the shard that the id says.

Any other plan is refused: ``queue.shard(n)`` is the queue on one shard, on which all works. A plan that is run on the caller's
connection, or within ``ctx.transaction()``, stays there; a new job whose key lives elsewhere is refused.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from pgqueue.errors import ConfigurationError, ConnectionFailed, ShardDown, WrongShard
from pgqueue.store.audit import unaudited
from pgqueue.store.connections.database import Database
from pgqueue.store.connections.open_transaction import OWN_CONNECTION
from pgqueue.store.plan import Plan
from pgqueue.store.queues import queues
from pgqueue.store.shards import shards
from pgqueue.store.shards.merge_answers import MERGED
from pgqueue.store.shards.shard_databases import Route, ShardDatabases, ShardPlan
from pgqueue.values.flows.flow import NewFlow
from pgqueue.values.jobs.job import EnqueueAnswer, NewJob
from pgqueue.values.jobs.options import is_pattern
from pgqueue.values.limits.status import LaneChange
from pgqueue.values.shards import ShardState, home_of, key_of, require_movable, shard_of_id
from pgqueue.values.signals import id_of_target, id_of_token

log = logging.getLogger("pgqueue.shards")

TRIES = 4
"""How often a job's home is looked for again because its key has moved."""


def route(places: ShardDatabases, plan: Plan[Any]) -> Route[Any]:
    """The route of a plan that no connection of the caller's binds to a shard.

    Raises:
        ConfigurationError: it is not done over several shards.
    """
    asked = unaudited(plan)  # also of a plan that the audit notes
    found = ROUTES.get(asked.name)
    if found is not None:
        return found(places, plan)
    if asked.name in MERGED:
        return _merge_all(places, plan)
    arguments = asked.arguments
    for name in ("job_id", "flow_id"):
        if isinstance(arguments.get(name), int):
            return _by_id(places, arguments[name], plan)
    raise ConfigurationError(
        f"{asked.name} is not done over several shards: use queue.shard(n), the queue on one shard; in the shell "
        "give --dsn of one database"
    )


def on_callers(database: Database, plan: Plan[Any], connection: object) -> Route[Any]:
    """Run a plan on the caller's connection, or in a job's transaction, which cannot leave its shard.

    Raises:
        WrongShard: what it adds belongs to another shard, or to several.
    """
    if plan.name == "signals.send" and id_of_target(plan.arguments["target"]) is None:
        raise WrongShard(
            "a signal to a key goes to every shard, and this transaction is on one: send it with connection=OWN_CONNECTION, "
            "committed at once"
        )
    if plan.name not in KEYED:
        return (yield ShardPlan(database, plan, connection))
    keys = _keys(plan.arguments)
    if isinstance(plan.arguments.get("jobs"), Iterable):
        jobs = list(plan.arguments["jobs"])
        keys = {key for job in jobs if (key := key_of(job)) is not None}
        plan = plan.but(jobs=jobs)
    part: Plan[Any] = plan
    for key in sorted(keys):
        part = shards.enter(key, part)
    answer = yield ShardPlan(database, part, connection)
    while isinstance(answer, shards.KeyedEnqueue):
        if answer.verdict != "here":
            raise _wrong_shard(answer.verdict, keys)
        answer = answer.answer
    return answer


def _merge_all(places: ShardDatabases, plan: Plan[Any]) -> Route[Any]:
    answers, missing = [], []
    for one in (yield from places.known()):
        try:
            answers.append((yield ShardPlan(one.database, plan, OWN_CONNECTION)))
        except ConnectionFailed as error:
            missing.append((one.dsn, str(error)))
    if not answers:
        raise ShardDown(f"no shard answers: {': '.join(missing[0])}")
    for dsn, said in missing:
        log.warning(
            "%s does not answer: what is shown lacks its jobs", dsn, extra={"shard": dsn, "error": said}
        )
    return MERGED[plan.name](answers, plan.arguments)


def _first(places: ShardDatabases, plan: Plan[Any]) -> Route[Any]:
    # Schedules live on the first shard. None has jobs with keys, which may have to live on another.
    if (asked := unaudited(plan)).name == "schedules.put":
        require_movable(asked.arguments["new"])
    return (yield from places.on_shard((yield from places.map()).members[0], plan))


def _everywhere(places: ShardDatabases, plan: Plan[Any]) -> Route[Any]:
    """What is said of queues and limits holds on every shard; all must answer, and it can be said again."""
    if plan.name in OF_PATTERNS and is_pattern(pattern := plan.arguments["queue"]):
        plan = plan.but(also=(yield from _names(places, pattern)))
    answer: Any = None
    for said in (yield from _of_each(places, plan)):
        if isinstance(said, LaneChange):
            answer = said + (answer or LaneChange(0))
        else:
            answer = sorted({*(answer or ()), *said}) if isinstance(said, list) else answer or said
    return answer


def _of_each(places: ShardDatabases, plan: Plan[Any]) -> Route[list[Any]]:
    answers = []
    for one in (yield from places.known()):
        try:
            answers.append((yield ShardPlan(one.database, plan, OWN_CONNECTION)))
        except ConnectionFailed as error:
            raise ShardDown(
                f"{one.dsn} does not answer, and what was stored is on the shards before it: repeat the call ({error})"
            ) from error
    return answers


def _names(places: ShardDatabases, pattern: str) -> Route[list[str]]:
    """Return the queues that a pattern stands for on any shard: jobs of these queues may be added to each of them later."""
    found: set[str] = set()
    for one in (yield from places.known()):
        try:
            found |= {*(yield ShardPlan(one.database, queues.names(pattern), OWN_CONNECTION))}
        except ConnectionFailed as error:
            raise ShardDown(
                f"{one.dsn} does not answer, so its queues are not known, and nothing was changed: {error}"
            ) from error
    return sorted(found)


def _signal(places: ShardDatabases, plan: Plan[Any]) -> Route[Any]:
    """A signal to a job or a flow goes to its shard; one to a key goes to every shard, as jobs on any may wait for it.

    It is the first if it is so on any shard: a call that failed on one of them can be repeated.
    """
    number = id_of_target(plan.arguments["target"])
    if number is not None:
        return (yield from _by_id(places, number, plan))
    answers = yield from _of_each(places, plan)
    return "first" if "first" in answers else answers[0]


def _resolve_callback(places: ShardDatabases, plan: Plan[Any]) -> Route[Any]:
    """Send a callback's token to its job's shard. Any shard refuses a token that names no job of ours."""
    number = id_of_token(plan.arguments["token"])
    if number is None or shard_of_id(number) not in (yield from places.map()).members:
        return (yield from _anywhere(places, plan))
    return (yield from _by_id(places, number, plan))


def _by_id(places: ShardDatabases, number: int, plan: Plan[Any]) -> Route[Any]:
    return (yield from places.on_shard(shard_of_id(number), plan))


def _enqueue_one(places: ShardDatabases, plan: Plan[Any]) -> Route[EnqueueAnswer]:
    key = key_of(plan.arguments["job"])
    done: EnqueueAnswer = yield from (_anywhere(places, plan) if key is None else _at_home(places, key, plan))
    return done


def _enqueued_many(places: ShardDatabases, plan: Plan[Any]) -> Route[list[EnqueueAnswer]]:
    """Add jobs: those of each shard all or none; those of a key that moves one by one."""
    jobs: list[NewJob] = list(plan.arguments["jobs"])
    known: ShardState = yield from places.map()
    plain: list[int] = []
    homes: dict[int, list[int]] = {}
    moving: list[int] = []
    for at, job in enumerate(jobs):
        key = key_of(job)
        if key is None:
            plain.append(at)
        elif len(where := known.homes(key)) > 1:
            moving.append(at)
        else:
            homes.setdefault(where[0], []).append(at)
    answers: dict[int, EnqueueAnswer] = {}
    if plain and homes:
        homes[next(iter(homes))] += plain  # one transaction less
    elif plain:
        part = plan.but(jobs=[jobs[at] for at in plain])
        answers |= zip(plain, (yield from _anywhere(places, part)), strict=True)
    for number, there in homes.items():
        there.sort()
        done = yield from _together(places, number, plan, [jobs[at] for at in there])
        answers |= zip(there, done, strict=True)
    for at in moving:
        one = plan.but(jobs=[jobs[at]])
        answers[at] = (yield from _at_home(places, str(key_of(jobs[at])), one))[0]
    return [answers[at] for at in range(len(jobs))]


def _together(
    places: ShardDatabases, number: int, plan: Plan[Any], jobs: Sequence[NewJob]
) -> Route[list[EnqueueAnswer]]:
    """Add jobs of several keys of one shard, all or none; one by one, if a key has moved meanwhile."""
    first = next(key for job in jobs if (key := key_of(job)) is not None)
    try:
        entered = yield from places.on_shard(number, shards.enter(first, plan.but(jobs=jobs)))
    except WrongShard:
        pass  # the guard has refused another key
    else:
        if entered.verdict == "here":
            return cast("list[EnqueueAnswer]", entered.answer)
    places.forget()
    answers = []
    for job in jobs:
        key, part = key_of(job), plan.but(jobs=[job])
        done = yield from (_anywhere(places, part) if key is None else _at_home(places, key, part))
        answers.append(done[0])
    return answers


def _flow(places: ShardDatabases, plan: Plan[Any]) -> Route[Any]:
    """A flow lives on one shard: the home of its key, else of its jobs' first key."""
    flow: NewFlow = plan.arguments["flow"]
    keys = [flow.key] if flow.key is not None else []
    keys += [key for job in flow.jobs if (key := key_of(job)) is not None]
    if not keys:
        return (yield from _anywhere(places, plan))
    known: ShardState = yield from places.map()
    if len({home_of(key, known.members) for key in keys}) > 1:
        raise WrongShard(
            f"the keys of this {flow.kind} live on several shards, and a flow lives on one: "
            f"{', '.join(sorted(f'{key!r:.60}' for key in {*keys}))}; leave out keys, or enqueue the second part from a task of the first"
        )
    if len(known.homes(keys[0])) > 1 and len({*keys}) > 1:
        raise WrongShard(
            f"{keys[0]!r:.60} is moving to another shard: a flow of several keys can be added when that is over"
        )
    return (yield from _at_home(places, keys[0], plan))


def _at_home(places: ShardDatabases, key: str, plan: Plan[Any]) -> Route[Any]:
    """Run a plan where a key lives, also if the key moves meanwhile."""
    verdict = "elsewhere"
    for _ in range(TRIES):
        homes = (yield from places.map()).homes(key)
        for place, number in enumerate(homes):
            entered = yield from places.on_shard(number, shards.enter(key, plan, arrives=place > 0))
            verdict = entered.verdict
            if verdict == "here":
                return entered.answer
        places.forget()  # it has moved since this process looked
    raise _wrong_shard(verdict, {key})


def _anywhere(places: ShardDatabases, plan: Plan[Any]) -> Route[Any]:
    failure: ConnectionFailed | None = None
    for one in (yield from places.in_turn()):
        try:
            return (yield ShardPlan(one.database, plan, OWN_CONNECTION))
        except ConnectionFailed as error:
            if error.maybe_done:
                raise
            places.note_away(one.database, error)
            log.warning(
                "a shard does not answer; another one is asked",
                extra={"shard": one.dsn, "error": str(error)},
            )
            failure = error
    raise ShardDown(f"no shard answers: {failure}") from failure


def _keys(arguments: Mapping[str, Any]) -> set[str]:
    job, flow = arguments.get("job"), arguments.get("flow")
    jobs = [job] if isinstance(job, NewJob) else flow.jobs if isinstance(flow, NewFlow) else []
    keys = {key for one in jobs if (key := key_of(one)) is not None}
    return keys | ({flow.key} if isinstance(flow, NewFlow) and flow.key is not None else set())


def _wrong_shard(verdict: str, keys: Iterable[str]) -> WrongShard:
    said = ", ".join(f"{key!r:.60}" for key in sorted(keys))
    if verdict == "isolation":
        return WrongShard(
            f"{said}: while keys move, enqueue them in READ COMMITTED, which sees whether they have"
        )
    if verdict == "undeclared":
        return WrongShard(f"{said}: the database of this connection is no shard of this queue")
    return WrongShard(
        f"{said}: the key lives on another shard than this connection, so one of its database's transactions cannot add the job; "
        "enqueue it with using(connection=OWN_CONNECTION), committed at once, or route the transaction to the key's shard: "
        "queue.shards.of_key(key)"
    )


EVERYWHERE = frozenset(
    {
        "queues.pause",
        "queues.close",
        "queues.resume",
        "queues.declare",
        "queues.change",
        "retention.keep_for",
        "limit_control.change",
        "limit_control.declare_interval",
        "limit_control.unset",
        "limit_control.weigh",
    }
)
"""Plans by which operators say something of queues or limits."""
OF_PATTERNS = frozenset({"queues.pause", "queues.close"})
"""Those of them that act on the queues of a pattern, also on shards that have no job of such a queue yet."""
KEYED = frozenset(
    {
        "enqueue.enqueue",
        "known_tasks.enqueue_noted",
        "enqueue.enqueue_few",
        "enqueue.enqueue_many",
        "flows.add",
    }
)
"""Plans that add jobs."""
FIRST = frozenset(
    {
        *(f"schedules.{name}" for name in ("apply", "put", "listed", "dated", "pause", "resume", "remove")),
        *(f"ticks.{name}" for name in ("fire", "backfill", "runs", "last_runs")),
        "insight.schedules",
        "insight.deploys",
    }
)
"""Plans about schedules, and the list of deploys."""
Routing: TypeAlias = Callable[[ShardDatabases, Plan[Any]], Route[Any]]
ROUTES: Mapping[str, Routing] = {
    "enqueue.enqueue": _enqueue_one,
    "known_tasks.enqueue_noted": _enqueue_one,
    "enqueue.enqueue_few": _enqueued_many,
    "enqueue.enqueue_many": _enqueued_many,
    "flows.add": _flow,
    "signals.send": _signal,
    "signals.resolve": _resolve_callback,
    **dict.fromkeys(EVERYWHERE, _everywhere),
    **dict.fromkeys(FIRST, _first),
}
"""Where plans go that are not about one id, by name."""
