"""What is known of queues in memory: which are paused or drained, and their settings."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec

from pgqueue.testing.row import JobRow
from pgqueue.values.jobs.options import check_text, matching_names
from pgqueue.values.queues.defaults import JobDefaults, QueueDefaults
from pgqueue.values.queues.settings import (
    AGEING_TO,
    MAX_ATTEMPTS,
    PRIORITY,
    Existing,
    KnownQueue,
    QueueSettings,
)
from pgqueue.values.queues.shares import Split


class KnownQueues:
    """Answers the plans of :mod:`pgqueue.store.queues.queues`."""

    def __init__(self, names: Callable[[], set[str]]) -> None:
        """``names`` returns the queues that have jobs."""
        self._names = names
        self._known: dict[str, KnownQueue] = {}

    @property
    def paused(self) -> set[str]:
        """Those that are paused."""
        return {name for name, one in self._known.items() if one.paused_at is not None}

    def turn(self, queues: Sequence[str], waiting: set[str], split: Split | None) -> str | None:
        """The queue from which a drain claims its next job; None: none of these queues has one.

        Args:
            queues: which are served, in their order.
            waiting: those that have ready jobs.
            split: whose turn it is; None: the first one's.
        """
        open_queues = waiting - self.paused
        if split is None:
            return next((queue for queue in queues if queue in open_queues), None)
        asked = list(queues)
        while asked:
            quotas = split.quotas(asked, 1)
            found = next((queue for queue in quotas if queue in open_queues), None)
            split.learn(quotas, {} if found is None else {found: 1}, 1)
            if found is not None:
                return found
            asked = [queue for queue in asked if queue not in quotas]
        return None

    def age(self, ready: Sequence[JobRow], now: datetime) -> None:
        """Raise the priority of jobs that have waited for long, where their queue has ageing."""
        for name, one in self._known.items():
            every, most = one.settings.ageing, one.settings.ageing_to or max(AGEING_TO)
            line = [row for row in ready if row.new.queue == name]
            if every is None or not line:
                continue
            highest = max(row.priority for row in line)
            for row in line:
                worth = min(most, (now - row.run_at) // every)
                if max(row.priority, 0) < worth and row.priority < highest:
                    row.new = msgspec.structs.replace(row.new, priority=worth)

    def timeouts(self) -> dict[str, timedelta]:
        """How long an attempt may take whose task names no timeout, by queue."""
        said = {name: one.settings.timeout for name, one in self._known.items()}
        return {name: timeout for name, timeout in said.items() if timeout is not None}

    def of(self, queue: str) -> KnownQueue:
        """What is known of one queue."""
        return self._known.get(queue) or KnownQueue(queue=queue)

    def defaults(self, *, refuses: bool = True) -> QueueDefaults:
        """What queues say of jobs that do not say it themselves."""
        return QueueDefaults(
            {
                name: JobDefaults(
                    PRIORITY if one.settings.priority is None else one.settings.priority,
                    MAX_ATTEMPTS if one.settings.max_attempts is None else one.settings.max_attempts,
                    one.drained_at is not None,
                    one.settings.backlog is not None,
                )
                for name, one in self._known.items()
            },
            refuses=refuses,
        )

    def known(self) -> list[KnownQueue]:
        """All that were paused, drained or given settings."""
        return [one for _, one in sorted(self._known.items())]

    def pause(
        self,
        queue: str,
        *,
        why: str | None,
        by: str | None,
        also: Sequence[str],  # noqa: ARG002 - there are no shards
        now: datetime,
    ) -> list[str]:
        """Stop queues from being claimed from."""
        found = [name for name in self._matching(queue) if self.of(name).paused_at is None]
        return self._change(found, paused_at=now, paused_by=by, paused_why=why)

    def drain(
        self,
        queue: str,
        *,
        why: str | None,
        by: str | None,
        also: Sequence[str],  # noqa: ARG002 - there are no shards
        now: datetime,
    ) -> list[str]:
        """Refuse enqueues to queues."""
        found = [name for name in self._matching(queue) if self.of(name).drained_at is None]
        return self._change(found, drained_at=now, drained_by=by, drained_why=why)

    def resume(self, queue: str, *, by: str | None) -> list[str]:  # noqa: ARG002 - nothing asks who
        """Let queues be claimed from again, and take jobs."""
        found = [
            name for name in self._matching(queue) if self.of(name).paused_at or self.of(name).drained_at
        ]
        return self._change(
            found,
            **dict.fromkeys(
                ("paused_at", "paused_by", "paused_why", "drained_at", "drained_by", "drained_why")
            ),
        )

    def declare(
        self,
        queue: str,
        settings: QueueSettings,
        *,
        existing: Existing,
        by: str | None,  # noqa: ARG002 - nothing asks who
        now: datetime,  # noqa: ARG002 - or when
    ) -> QueueSettings:
        """Give a queue settings."""
        chosen = settings.over(self.of(queue).settings, existing=existing, queue=queue)
        self._change([queue], settings=chosen)
        return chosen

    def change(
        self,
        queue: str,
        settings: QueueSettings,
        *,
        unset: Sequence[str],
        by: str | None,  # noqa: ARG002 - nothing asks who
        now: datetime,  # noqa: ARG002 - or when
    ) -> QueueSettings:
        """Change some settings of a queue."""
        chosen = self.of(queue).settings.but(settings, unset)
        self._change([queue], settings=chosen)
        return chosen

    def _matching(self, pattern: str) -> list[str]:
        return matching_names(check_text("queue", pattern), sorted({*self._names(), *self._known}))

    def _change(self, names: list[str], **fields: object) -> list[str]:
        for name in names:
            self._known[name] = msgspec.structs.replace(self.of(name), **fields)
        return names
