"""The queue as people look at it: ``queue.insight``. One module behind every door: dashboards, the command, metrics.

What is read is decided in :mod:`pgqueue.store.insight.insight` and its neighbours. What happened over time is in ``over_time.py``.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar, Unpack

import msgspec

from pgqueue.app.insight.criteria import (
    AuditCriteria,
    SearchCriteria,
    audit_plan,
    due_plan,
    search_plan,
)
from pgqueue.app.insight.of_runs import OfRuns
from pgqueue.app.insight.over_time import OverTime
from pgqueue.app.notes import opened_progress
from pgqueue.app.registry import Registry
from pgqueue.store import retention
from pgqueue.store.connections.replica import ReplicatedDatabase
from pgqueue.store.insight import health, insight, searching
from pgqueue.store.insight import story as stories
from pgqueue.store.insight.searching import StoredDetail
from pgqueue.store.jobs import control, known_tasks
from pgqueue.store.jobs.known_tasks import KnownTask
from pgqueue.store.limits import limit_control
from pgqueue.store.queues import queues
from pgqueue.values.bulk.filter import check_ids
from pgqueue.values.bulk.operation import AuditEntry
from pgqueue.values.insight.health import Health
from pgqueue.values.insight.now import (
    Deploy,
    DuePage,
    Errors,
    JobDetail,
    Running,
    ScheduleLag,
    SearchPage,
    StoreHealth,
)
from pgqueue.values.insight.problems import judge_health
from pgqueue.values.insight.story import Story
from pgqueue.values.jobs.job import QueueCount
from pgqueue.values.jobs.options import check_page
from pgqueue.values.limits.status import LimitDetail, LimitStatus
from pgqueue.values.payloads.codec import decode_job
from pgqueue.values.queues.standing import QueueStanding, with_declared
from pgqueue.values.retention import Kept
from pgqueue.values.shards import ReplicaStatus

Page = TypeVar("Page", SearchPage, DuePage)


class Insight(OverTime, OfRuns):
    """Looks at the queue as a whole. Each method takes milliseconds however many jobs wait, and has an async version with an ``a``.

    The answers are frozen values; ``msgspec.to_builtins`` makes JSON of each. Instants are of the database's clock.
    """

    def __init__(self, queue: Registry) -> None:
        super().__init__(queue)
        self._queue: Registry = queue

    def health(self, queues: Sequence[QueueStanding] | None = None) -> Health:
        """Whether all is right: one sentence, and every problem, the worst first, with what it is about, since when, and a command.

        Problems are: no worker, or none that serves a queue with ready jobs; workers that are stalled, unresponsive or lost; tasks
        that fail now, or more than before the last deploy; tasks that no worker runs; limits that hold jobs back for more than 10
        minutes; schedules that are late or set aside; alerts. Paused and closed queues, and silenced alerts, are told as information.

        Args:
            queues: what :meth:`queues` returned a moment ago; None: it is asked.
        """
        found = self.queues() if queues is None else queues
        return judge_health(found, self._queue.database.run(health.facts(self._queue.limits)))

    async def ahealth(self, queues: Sequence[QueueStanding] | None = None) -> Health:
        """As :meth:`health`, awaited."""
        found = await self.aqueues() if queues is None else queues
        return judge_health(found, await self._queue.database.arun(health.facts(self._queue.limits)))

    def queues(self) -> Sequence[QueueStanding]:
        """How every queue stands: how many jobs in which state, the age of the oldest ready one, the rate, in the order of names.

        Queues without a job that the app declares, or that were paused, closed or given settings, are among them. The numbers are exact while
        a table has up to 125 MiB; of larger ones some are estimates, and ``estimated`` names these. :meth:`counts` is exact.
        """
        return with_declared(self._queue.queues, self._queue.database.run(queues.queue_standings()))

    async def aqueues(self) -> Sequence[QueueStanding]:
        """As :meth:`queues`, awaited."""
        found = await self._queue.database.arun(queues.queue_standings())
        return with_declared(self._queue.queues, found)

    def counts(self) -> tuple[list[QueueCount], list[str]]:
        """How many jobs of each queue are in each state, exactly, those that have succeeded or were cancelled left out; and which queues are paused.

        It reads all live and dead jobs, so it is the one method here that takes longer where there are more jobs.
        """
        return self._queue.database.run(control.counts())

    async def acounts(self) -> tuple[list[QueueCount], list[str]]:
        """As :meth:`counts`, awaited."""
        return await self._queue.database.arun(control.counts())

    def running(self, *, queue: str | None = None, task: str | None = None, limit: int = 100) -> Running:
        """Which worker holds which job, and since when; those that were claimed first at the front.

        Args:
            queue: only jobs of this queue.
            task: only jobs of this task.
            limit: at most how many, up to 10,000.
        """
        return self._queue.database.run(insight.running(queue=queue, task=task, limit=check_page(limit)))

    async def arunning(
        self, *, queue: str | None = None, task: str | None = None, limit: int = 100
    ) -> Running:
        """As :meth:`running`, awaited."""
        plan = insight.running(queue=queue, task=task, limit=check_page(limit))
        return await self._queue.database.arun(plan)

    def search(self, **criteria: Unpack[SearchCriteria]) -> SearchPage:
        """Jobs in any state that match every criterion given (:class:`SearchCriteria`), newest first.

        Up to 100,000 jobs are looked at; 10,000 where each one's arguments must be read. The answer says where it stopped.

        Raises:
            InvalidOption: a criterion is out of its range, or the queue's codec encodes what it looks into.
        """
        return _decode_page(self._queue, self._queue.database.run(search_plan(self._queue, criteria)))

    async def asearch(self, **criteria: Unpack[SearchCriteria]) -> SearchPage:
        """As :meth:`search`, awaited."""
        return _decode_page(self._queue, await self._queue.database.arun(search_plan(self._queue, criteria)))

    def due(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        args: Mapping[str, Any] | None = None,
        after: tuple[datetime, int] | None = None,
        limit: int = 100,
    ) -> DuePage:
        """Scheduled jobs in the order in which they are due. The answer says where it stopped, as that of :meth:`search` does.

        Args:
            queue: only jobs of this queue; a pattern such as ``mail-*`` is allowed.
            task: only jobs of this task; a pattern is allowed.
            args: only jobs whose arguments contain these.
            after: behind the job with this ``run_at`` and this id: the last job of the page before, or ``looked_to``.
            limit: at most how many, up to 10,000.

        Raises:
            InvalidOption: an argument is out of its range, or the queue's codec encodes the jobs' arguments.
        """
        plan = due_plan(self._queue, {"queue": queue, "task": task, "args": args}, after, limit)
        return _decode_page(self._queue, self._queue.database.run(plan))

    async def adue(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        args: Mapping[str, Any] | None = None,
        after: tuple[datetime, int] | None = None,
        limit: int = 100,
    ) -> DuePage:
        """As :meth:`due`, awaited."""
        plan = due_plan(self._queue, {"queue": queue, "task": task, "args": args}, after, limit)
        return _decode_page(self._queue, await self._queue.database.arun(plan))

    def details(self, job_ids: Sequence[int]) -> Mapping[int, JobDetail]:
        """What a list shows of live jobs beside their records: what a blocked one waits for, who runs one, how far it is.

        Args:
            job_ids: which, at most 10,000; those that have ended are left out.
        """
        return _opened_details(
            self._queue, self._queue.database.run(searching.details(check_ids("job_ids", job_ids)))
        )

    async def adetails(self, job_ids: Sequence[int]) -> Mapping[int, JobDetail]:
        """As :meth:`details`, awaited."""
        return _opened_details(
            self._queue, await self._queue.database.arun(searching.details(check_ids("job_ids", job_ids)))
        )

    def story(self, job_id: int) -> Story:
        """What surrounds a job: its place in a flow, the steps that it has done, its checkpoint. ``queue.job`` is its record.

        Args:
            job_id: which. Of a job that does not exist, there is nothing.
        """
        return self._queue.database.run(stories.story(job_id))

    async def astory(self, job_id: int) -> Story:
        """As :meth:`story`, awaited."""
        return await self._queue.database.arun(stories.story(job_id))

    def errors(self, *, queue: str | None = None, task: str | None = None, limit: int = 100) -> Errors:
        """Why jobs died: the dead jobs by task and error, with counts, first and last seen; the most frequent first.

        Of more than 2,000 dead jobs that match, the last 2,000 are counted, and the answer says so (``complete``).

        Args:
            queue: only jobs of this queue.
            task: only jobs of this task.
            limit: at most how many groups, up to 10,000.
        """
        return self._queue.database.run(insight.errors(queue=queue, task=task, limit=check_page(limit)))

    async def aerrors(self, *, queue: str | None = None, task: str | None = None, limit: int = 100) -> Errors:
        """As :meth:`errors`, awaited."""
        plan = insight.errors(queue=queue, task=task, limit=check_page(limit))
        return await self._queue.database.arun(plan)

    def known_tasks(self, task: str | None = None, *, limit: int = 1_000) -> Sequence[KnownTask]:
        """What workers have said of their tasks when they started: names, queues, and JSON schemas of arguments and results.

        Args:
            task: only this one.
            limit: at most how many, up to 10,000.
        """
        return self._queue.database.run(known_tasks.listed(task, check_page(limit)))

    async def aknown_tasks(self, task: str | None = None, *, limit: int = 1_000) -> Sequence[KnownTask]:
        """As :meth:`known_tasks`, awaited."""
        return await self._queue.database.arun(known_tasks.listed(task, check_page(limit)))

    def schedules(self, *, limit: int = 100) -> Sequence[ScheduleLag]:
        """How late schedules are, the latest first.

        Args:
            limit: at most how many, up to 10,000.
        """
        return self._queue.database.run(insight.schedules(limit=check_page(limit)))

    async def aschedules(self, *, limit: int = 100) -> Sequence[ScheduleLag]:
        """As :meth:`schedules`, awaited."""
        return await self._queue.database.arun(insight.schedules(limit=check_page(limit)))

    def limits(self) -> Sequence[LimitStatus]:
        """Every limit, and how many jobs run and wait under it; :meth:`limit` names the jobs that hold one.

        ``running`` is counted from the jobs, as workers count. ``lost`` of them are held by workers that are gone; a sweep
        takes those over, so that more than a moment after a crash it is 0. ``waiting`` is counted where the table of live jobs is
        small (some million jobs); of a larger one a sample tells about how many jobs wait, and ``estimated`` is true.
        """
        return self._queue.database.run(limit_control.listed(self._queue.limits))

    async def alimits(self) -> Sequence[LimitStatus]:
        """As :meth:`limits`, awaited."""
        return await self._queue.database.arun(limit_control.listed(self._queue.limits))

    def limit(self, name: str) -> LimitDetail:
        """One limit, its keys, and the jobs that hold its places.

        Args:
            name: of the limit.

        Raises:
            InvalidOption: no limit has this name.
        """
        return self._queue.database.run(limit_control.show(name, self._queue.limits))

    async def alimit(self, name: str) -> LimitDetail:
        """As :meth:`limit`, awaited."""
        return await self._queue.database.arun(limit_control.show(name, self._queue.limits))

    def weights(self) -> Mapping[str, int]:
        """The weights of shares that an operator has set, by the shares' keys."""
        return self._queue.database.run(limit_control.weights())

    async def aweights(self) -> Mapping[str, int]:
        """As :meth:`weights`, awaited."""
        return await self._queue.database.arun(limit_control.weights())

    def audit(
        self, *, before: int | None = None, limit: int = 100, **only: Unpack[AuditCriteria]
    ) -> list[AuditEntry]:
        """What operators did to queues, jobs and workers, newest first.

        Args:
            before: with a lower id than this; give the last id of a page to get the next.
            limit: at most how many entries, up to 10,000.
            only: what every entry has to match: by whom, which action, from when until when.

        Raises:
            InvalidOption: a value is out of its range.
        """
        return self._queue.database.run(audit_plan(only, before, limit))

    async def aaudit(
        self, *, before: int | None = None, limit: int = 100, **only: Unpack[AuditCriteria]
    ) -> list[AuditEntry]:
        """As :meth:`audit`, awaited."""
        return await self._queue.database.arun(audit_plan(only, before, limit))

    def deploys(self) -> list[Deploy]:
        """The deploys that ``pgqueue pipeline deployed`` has recorded, newest first."""
        return self._queue.database.run(insight.deploys())

    async def adeploys(self) -> list[Deploy]:
        """As :meth:`deploys`, awaited."""
        return await self._queue.database.arun(insight.deploys())

    def replica(self) -> ReplicaStatus | None:
        """How far behind the replica is that answers these methods; None: the queue has none, the primary answers."""
        database = self._queue.database.itself
        return database.replica_status() if isinstance(database, ReplicatedDatabase) else None

    async def areplica(self) -> ReplicaStatus | None:
        """As :meth:`replica`, awaited."""
        database = self._queue.database.itself
        return await database.areplica_status() if isinstance(database, ReplicatedDatabase) else None

    def retention(self) -> Sequence[Kept]:
        """What is kept for how long, how much there is, and when what is removed next."""
        return self._queue.database.run(retention.shown())

    async def aretention(self) -> Sequence[Kept]:
        """As :meth:`retention`, awaited."""
        return await self._queue.database.arun(retention.shown())

    def store(self) -> StoreHealth:
        """How the tables stand: sizes, dead rows, what holds vacuum back, partitions of the history."""
        return self._queue.database.run(insight.store())

    async def astore(self) -> StoreHealth:
        """As :meth:`store`, awaited."""
        return await self._queue.database.arun(insight.store())


def _opened_details(queue: Registry, found: Mapping[int, StoredDetail]) -> Mapping[int, JobDetail]:
    return {
        job_id: msgspec.structs.replace(one.detail, progress=opened_progress(queue.codec, one.progress))
        for job_id, one in found.items()
    }


def _decode_page(queue: Registry, found: Page) -> Page:
    return msgspec.structs.replace(found, jobs=tuple(decode_job(queue.codec, job) for job in found.jobs))
