"""A queue over several databases: which of them each plan is run on.

:class:`Sharded` stands where a :class:`~pgqueue.store.database.Database` stands, so all above asks it the same plans. It
decides by the plan's name and arguments (:data:`ROUTES`):

- a plan about one job or flow goes to the shard that the id says;
- a new job goes to the home of its key (:mod:`pgqueue.values.sharding`); one without a key to any shard that answers;
- what operators say of queues and limits is said to every shard;
- some looks are put together of all shards. A shard that does not answer is left out, with a line in the log.

Any other plan is refused: ``queue.shard(n)`` is the queue on one shard, on which all works.

A route is a generator, as a plan is: it yields which plan to run on which database, and is sent the answer or thrown the
error. So there is one copy of it for blocking and awaited calls. A plan that is run on the caller's connection, or within
``ctx.transaction()``, stays there; a new job whose key lives elsewhere is refused.
"""

import logging
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import psycopg

from pgqueue.errors import ConfigurationError, ConnectionFailed, ShardDown, WrongShard
from pgqueue.store import shards
from pgqueue.store.database import Database
from pgqueue.store.dsn import connect_within, without_secrets
from pgqueue.store.joining import OWN_CONNECTION, open_transaction
from pgqueue.store.merging import MERGED
from pgqueue.store.plan import Plan
from pgqueue.values.flow import NewFlow
from pgqueue.values.job import Enqueued, NewJob
from pgqueue.values.sharding import ShardState, home_of, key_of, shard_of_id

T = TypeVar("T")
log = logging.getLogger("pgqueue.shards")

CONNECT_WITHIN = 5
"""Seconds that a call waits for a connection to a shard."""
AGAIN_AFTER = 5.0
"""Seconds for which a shard that did not answer is not asked for what others can do."""
GUARDED = "PQ001"
"""The SQLSTATE with which a shard's guard refuses a transaction that has added a job with a key of another shard."""
TRIES = 4
"""How often a job's home is looked for again because its key has moved."""


class Ask(NamedTuple):
    """A plan to run.

    Attributes:
        database: where.
        plan: which.
        connection: the caller's connection; None: one of the database's own.
    """

    database: Database
    plan: Plan[Any]
    connection: object = None


Route: TypeAlias = Generator[Ask, Any, T]


class Shard(NamedTuple):
    """What is known of a shard.

    Attributes:
        database: where it is.
        state: what it says of itself; None: it is no shard, or it does not answer.
        error: why it does not answer; None: it does.
    """

    database: Database
    state: ShardState | None
    error: str | None = None

    @property
    def dsn(self) -> str:
        """Where it is, without secrets."""
        return without_secrets(self.database.dsn)


class Sharded(Database):
    """The databases of one queue.

    Attributes:
        databases: they, in the order in which they were given. Which shard each is, it says itself.
    """

    def __init__(self, dsns: Sequence[str], **options: Any) -> None:  # noqa: ANN401 - Database's own
        """Remember where they are. Nothing is connected until something is run.

        Args:
            dsns: one for each database.
            options: as for :class:`~pgqueue.store.database.Database`; they hold for each.
        """
        given = [connect_within(dsn, CONNECT_WITHIN) for dsn in dsns]
        if not given or len({*given}) < len(given):
            raise ConfigurationError(f"shards={len(given)} DSNs: give each database once, and at least one")
        super().__init__(given[0], **options)
        self._options = options
        self.databases = [Database(dsn, **options) for dsn in given]
        for one in self.databases:
            one.pools.wait = CONNECT_WITHIN
        self._shards: list[Shard] | None = None
        self._away: dict[int, float] = {}
        self._turn = count()

    def run(self, plan: Plan[T], connection: object = None) -> T:
        """Run a plan on the shard or shards that it is about; see :meth:`Database.run`."""
        return cast("T", self._drive(self._route(plan, connection)))

    async def arun(self, plan: Plan[T], connection: object = None) -> T:
        """Run a plan as :meth:`run` does, awaited."""
        return cast("T", await self._adrive(self._route(plan, connection)))

    def joins(self, connection: object) -> bool:
        """Whether a plan would run on the caller's connection, or in a job's open transaction on any shard."""
        return connection is not OWN_CONNECTION and not (connection is None and self._joined() is None)

    def of_job(self, job_id: int) -> Database:
        """The database of a job.

        Raises:
            ShardDown: its shard does not answer, or is not in the list.
        """
        return self.of_number(shard_of_id(job_id))

    def of_number(self, number: int) -> Database:
        """The database of a shard.

        Raises:
            ShardDown: it does not answer, or is not in the list.
        """
        return self._drive(self._at(number))

    def members(self) -> Sequence[int]:
        """The numbers of the shards on which keys live, in the order in which they were added."""
        return self._drive(self._map()).members

    def shards(self) -> list[Shard]:
        """What each database says of itself now."""
        self._shards = None
        return self._drive(self._known())

    def forget(self) -> None:
        """Ask the databases again what they are, when it is next needed."""
        self._shards = None

    async def ashards(self) -> list[Shard]:
        """As :meth:`shards`, awaited."""
        self._shards = None
        return await self._adrive(self._known())

    def first_of(self, known: Sequence[Shard]) -> Database | None:
        """The database on which schedules live; None: it does not answer.

        Args:
            known: what :meth:`shards` returned.
        """
        members = max((one.state.members for one in known if one.state is not None), key=len, default=(0,))
        return next((one.database for one in known if one.state and one.state.number == members[0]), None)

    def verify(self) -> None:
        """Check that a shard answers, and that the tables of those that answer are of this release.

        Raises:
            ConnectionFailed: none answers.
        """
        failures = []
        for one in self.databases:
            try:
                one.verify()
            except ConnectionFailed as error:
                failures.append(error)
        if len(failures) == len(self.databases):
            raise failures[0]

    def close(self) -> None:
        """Close the connections to all."""
        for one in self.databases:
            one.close()

    async def aclose(self) -> None:
        """As :meth:`close`, awaited."""
        for one in self.databases:
            await one.aclose()

    def _remade(self, dsn: str | None, **options: Any) -> Database:  # noqa: ANN401 - Database's own
        """The same shards with other options; with a DSN, that one database."""
        return Database(dsn, **options) if dsn else Sharded([one.dsn for one in self.databases], **options)

    def _drive(self, route: "Route[T]") -> T:
        try:
            ask = next(route)
            while True:
                try:
                    answer = ask.database.run(ask.plan, ask.connection)
                except Exception as error:  # noqa: BLE001 - the route decides
                    ask = route.throw(error)
                else:
                    ask = route.send(answer)
        except StopIteration as end:
            return cast("T", end.value)

    async def _adrive(self, route: "Route[T]") -> T:
        try:
            ask = next(route)
            while True:
                try:
                    answer = await ask.database.arun(ask.plan, ask.connection)
                except Exception as error:  # noqa: BLE001 - the route decides
                    ask = route.throw(error)
                else:
                    ask = route.send(answer)
        except StopIteration as end:
            return cast("T", end.value)

    def _joined(self) -> Database | None:
        """The shard of a job's transaction that is open here."""
        return next((one for one in self.databases if open_transaction(one) is not None), None)

    def _route(self, plan: Plan[Any], connection: object) -> Route[Any]:
        joined = self._joined() if connection is None else None
        if joined is not None or (connection is not None and connection is not OWN_CONNECTION):
            return self._on_callers(joined or self.databases[0], plan, connection)
        found = ROUTES.get(plan.name)
        if found is not None:
            return found(self, plan, plan.arguments)
        if plan.name in MERGED:
            return self._merged(plan)
        arguments = plan.arguments
        for name in ("job_id", "flow_id"):
            if isinstance(arguments.get(name), int):
                return self._on_shard(shard_of_id(arguments[name]), plan)
        raise ConfigurationError(
            f"{plan.name} is not done over several shards: use queue.shard(n), the queue on one shard"
        )

    def _on_callers(self, database: Database, plan: Plan[Any], connection: object) -> Route[Any]:
        """Run a plan on the caller's connection, or in a job's transaction, which cannot leave its shard."""
        if plan.name not in KEYED:
            return (yield Ask(database, plan, connection))
        keys = _keys(plan.arguments)
        if isinstance(plan.arguments.get("jobs"), Iterable):
            jobs = list(plan.arguments["jobs"])
            keys = {key for job in jobs if (key := key_of(job)) is not None}
            plan = plan.but(jobs=jobs)
        part: Plan[Any] = plan
        for key in sorted(keys):
            part = _nested(key, part)
        answer = yield Ask(database, part, connection)
        while isinstance(answer, shards.Entered):
            if answer.verdict != "here":
                raise _wrong_shard(answer.verdict, keys)
            answer = answer.answer
        return answer

    def _known(self) -> "Route[list[Shard]]":
        """What the databases say of themselves, as this process last heard it."""
        if self._shards is None:
            found = []
            for one in self.databases:
                try:
                    found.append(Shard(one, (yield Ask(one, shards.state(), OWN_CONNECTION))))
                except ConnectionFailed as error:
                    found.append(Shard(one, None, str(error)))
            if all(one.error for one in found):
                raise ShardDown(f"no shard answers: {found[0].error}")
            undeclared = [one.dsn for one in found if one.state is None and one.error is None]
            if len(undeclared) == sum(one.error is None for one in found):
                raise ConfigurationError(
                    f"{undeclared[0]} is no shard yet: declare the databases of the list with `pgqueue shards init`"
                )
            self._shards = found
        return self._shards

    def _map(self) -> "Route[ShardState]":
        """On which shards keys live. Of a move, the last member has the word: it hears of the end last."""
        known = [one.state for one in (yield from self._known()) if one.state is not None]
        longest = max(known, key=lambda one: len(one.members))
        last = next((one for one in known if one.number == longest.members[-1]), None)
        return ShardState(longest.number, longest.members, last is None or last.moving)

    def _at(self, number: int) -> "Route[Database]":
        """The database of a shard, also of one that has begun to answer."""
        for again in (False, True):
            for one in (yield from self._known()):
                if one.state is not None and one.state.number == number:
                    return one.database
            if not again:
                self._shards = None
        away = "; ".join(f"{one.dsn}: {one.error}" for one in (yield from self._known()) if one.error)
        self._shards = None  # asked again by the next call
        raise ShardDown(
            f"shard {number} does not answer ({away}); jobs of other shards go on"
            if away
            else f"shard {number} is not among PgQueue(shards=...): it was added, so give this program its DSN"
        )

    def _on_shard(self, number: int, plan: Plan[T]) -> Route[T]:
        database = yield from self._at(number)
        try:
            return (yield Ask(database, plan, OWN_CONNECTION))  # type: ignore[no-any-return]  # the plan's result
        except ConnectionFailed as error:
            raise _down(number, error) from error

    def _merged(self, plan: Plan[Any]) -> Route[Any]:
        """One answer of those of all shards."""
        answers, missing = [], []
        for one in (yield from self._known()):
            try:
                answers.append((yield Ask(one.database, plan, OWN_CONNECTION)))
            except ConnectionFailed as error:
                missing.append(f"{one.dsn}: {error}")
        if not answers:
            raise ShardDown(f"no shard answers: {missing[0]}")
        for one in missing:
            log.warning("a shard does not answer: what is shown lacks its jobs", extra={"shard": one})
        return MERGED[plan.name](answers, plan.arguments)

    def _first(self, plan: Plan[Any], _: Mapping[str, Any]) -> Route[Any]:
        """Schedules live on the first shard."""
        return (yield from self._on_shard((yield from self._map()).members[0], plan))

    def _everywhere(self, plan: Plan[Any], _: Mapping[str, Any]) -> Route[Any]:
        """What is said of queues and limits holds on every shard; all must answer, and it can be said again."""
        answer: Any = None
        for one in (yield from self._known()):
            try:
                said = yield Ask(one.database, plan, OWN_CONNECTION)
            except ConnectionFailed as error:
                raise ShardDown(
                    f"{one.dsn} does not answer, and what was said holds on the shards before it: say it again ({error})"
                ) from error
            answer = answer or said
        return answer

    def _enqueued(self, plan: Plan[Any], arguments: Mapping[str, Any]) -> Route[Enqueued]:
        """A new job, at the home of its key."""
        key = key_of(arguments["job"])
        return (yield from (self._anywhere(plan) if key is None else self._at_home(key, plan)))

    def _enqueued_many(self, plan: Plan[Any], arguments: Mapping[str, Any]) -> Route[list[Enqueued]]:
        """New jobs: those of each shard all or none; those of a key that moves one by one."""
        jobs: list[NewJob] = list(arguments["jobs"])
        known: ShardState = yield from self._map()
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
        answers: dict[int, Enqueued] = {}
        if plain and homes:
            homes[next(iter(homes))] += plain  # one transaction less
        elif plain:
            part = plan.but(jobs=[jobs[at] for at in plain])
            answers |= zip(plain, (yield from self._anywhere(part)), strict=True)
        for number, places in homes.items():
            places.sort()
            done = yield from self._together(number, plan, [jobs[at] for at in places])
            answers |= zip(places, done, strict=True)
        for at in moving:
            one = plan.but(jobs=[jobs[at]])
            answers[at] = (yield from self._at_home(str(key_of(jobs[at])), one))[0]
        return [answers[at] for at in range(len(jobs))]

    def _together(self, number: int, plan: Plan[Any], jobs: Sequence[NewJob]) -> Route[list[Enqueued]]:
        """Jobs of several keys of one shard, all or none; one by one, where a key has moved meanwhile."""
        key = next(key for job in jobs if (key := key_of(job)) is not None)
        part = plan.but(jobs=jobs)
        try:
            entered = yield from self._on_shard(number, shards.enter(key, part))
        except psycopg.Error as error:
            if error.sqlstate != GUARDED:
                raise
        else:
            if entered.verdict == "here":
                return cast("list[Enqueued]", entered.answer)
        self._shards = None
        answers = []
        for job in jobs:
            key, part = key_of(job), plan.but(jobs=[job])
            done = yield from (self._anywhere(part) if key is None else self._at_home(key, part))
            answers.append(done[0])
        return answers

    def _flow(self, plan: Plan[Any], arguments: Mapping[str, Any]) -> Route[Any]:
        """A flow lives on one shard: the home of its key, else of its jobs' first key."""
        flow: NewFlow = arguments["flow"]
        keys = [flow.key] if flow.key is not None else []
        keys += [key for job in flow.jobs if (key := key_of(job)) is not None]
        if not keys:
            return (yield from self._anywhere(plan))
        known: ShardState = yield from self._map()
        if len({home_of(key, known.members) for key in keys}) > 1:
            raise WrongShard(
                f"the keys of this {flow.kind} live on several shards, and a flow lives on one: "
                f"{', '.join(sorted(f'{key!r:.60}' for key in {*keys}))}; leave out keys, or enqueue the second part from a task of the first"
            )
        if len(known.homes(keys[0])) > 1 and len({*keys}) > 1:
            raise WrongShard(
                f"{keys[0]!r:.60} is moving to another shard: a flow of several keys can be added when that is over"
            )
        return (yield from self._at_home(keys[0], plan))

    def _at_home(self, key: str, plan: Plan[Any]) -> Route[Any]:
        """Run a plan where a key lives, wherever that is by now."""
        verdict = "elsewhere"
        for _ in range(TRIES):
            homes = (yield from self._map()).homes(key)
            for place, number in enumerate(homes):
                entered = yield from self._on_shard(number, shards.enter(key, plan, arrives=place > 0))
                verdict = entered.verdict
                if verdict == "here":
                    return entered.answer
            self._shards = None  # it has moved since this process looked
        raise _wrong_shard(verdict, {key})

    def _anywhere(self, plan: Plan[Any]) -> Route[Any]:
        """Run a plan on a shard that answers: each in turn."""
        known = [one for one in (yield from self._known()) if one.state is not None]
        members = (yield from self._map()).members
        ready = [one for one in known if one.state is not None and one.state.number in members]
        first = next(self._turn)
        turns = [ready[(first + at) % len(ready)] for at in range(len(ready))]
        turns.sort(key=lambda one: self._away.get(id(one.database), 0.0) > time.monotonic())
        failure: ConnectionFailed | None = None
        for one in turns:
            try:
                return (yield Ask(one.database, plan, OWN_CONNECTION))
            except ConnectionFailed as error:
                if error.maybe_done:
                    raise
                self._away[id(one.database)] = time.monotonic() + AGAIN_AFTER
                log.warning(
                    "a shard does not answer; another takes the job",
                    extra={"shard": one.dsn, "error": str(error)},
                )
                failure = error
        raise ShardDown(f"no shard answers: {failure}") from failure


def require_only_shards(*others: str | None) -> None:
    """Refuse a queue of shards that says in another way, too, where its database is.

    Raises:
        ConfigurationError: it does.
    """
    if any(others):
        raise ConfigurationError(
            "shards=[...] says where all databases are: leave out dsn, replica and direct_dsn"
        )


def _nested(key: str, plan: Plan[Any]) -> Plan[shards.Entered]:
    return shards.enter(key, plan)


def _keys(arguments: Mapping[str, Any]) -> set[str]:
    """The keys of what a plan adds."""
    job, flow = arguments.get("job"), arguments.get("flow")
    jobs = [job] if isinstance(job, NewJob) else flow.jobs if isinstance(flow, NewFlow) else []
    keys = {key for one in jobs if (key := key_of(one)) is not None}
    return keys | ({flow.key} if isinstance(flow, NewFlow) and flow.key is not None else set())


def _down(number: int, error: ConnectionFailed) -> ShardDown:
    down = ShardDown(f"shard {number} does not answer; jobs of other shards go on: {error}")
    down.maybe_done = error.maybe_done
    return down


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
        "queue.shard_of(key)"
    )


EVERYWHERE = frozenset(
    {
        "queues.pause",
        "queues.drain",
        "queues.resume",
        "queues.declare",
        "queues.change",
        "limit_control.change",
        "limit_control.unset",
        "limit_control.weigh",
    }
)
"""Plans by which operators say something of queues or limits."""
KEYED = frozenset({"enqueue.enqueue", "enqueue.enqueue_many", "flows.add"})
"""Plans that add jobs."""
FIRST = frozenset(
    f"schedules.{name}" for name in ("apply", "listed", "dated", "pause", "resume", "remove", "fire")
)
"""Plans about schedules."""
Routing: TypeAlias = Callable[[Sharded, Plan[Any], Mapping[str, Any]], Route[Any]]
ROUTES: Mapping[str, Routing] = {
    "enqueue.enqueue": Sharded._enqueued,  # noqa: SLF001 - of this module
    "enqueue.enqueue_many": Sharded._enqueued_many,  # noqa: SLF001 - of this module
    "flows.add": Sharded._flow,  # noqa: SLF001 - of this module
    **dict.fromkeys(EVERYWHERE, Sharded._everywhere),  # noqa: SLF001 - of this module
    **dict.fromkeys(FIRST, Sharded._first),  # noqa: SLF001 - of this module
}
"""Where plans go that are not about one id, by name."""
