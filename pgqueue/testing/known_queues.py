"""What is known of queues in memory: which are paused or closed, and their settings."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partialmethod

import msgspec

from pgqueue.values.jobs.options import check_text, matching_names
from pgqueue.values.queues.defaults import JobDefaults, QueueDefaults
from pgqueue.values.queues.settings import (
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
                    one.closed_at is not None,
                    one.settings.backlog is not None,
                )
                for name, one in self._known.items()
            },
            refuses=refuses,
        )

    def known(self) -> list[KnownQueue]:
        """All that were paused, closed or given settings."""
        return [one for _, one in sorted(self._known.items())]

    def _mark(
        self,
        how: str,
        queue: str,
        *,
        why: str | None,
        by: str | None,
        also: Sequence[str],  # noqa: ARG002 - there are no shards
        now: datetime,
    ) -> list[str]:
        found = [name for name in self._matching(queue) if getattr(self.of(name), f"{how}_at") is None]
        return self._change(found, **{f"{how}_at": now, f"{how}_by": by, f"{how}_why": why})

    pause = partialmethod(_mark, "paused")
    close = partialmethod(_mark, "closed")

    def resume(self, queue: str, *, by: str | None) -> list[str]:  # noqa: ARG002 - nothing asks who
        """Let queues be claimed from again, and take jobs."""
        found = [name for name in self._matching(queue) if self.of(name).paused_at or self.of(name).closed_at]
        return self._change(
            found,
            **dict.fromkeys(("paused_at", "paused_by", "paused_why", "closed_at", "closed_by", "closed_why")),
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
        why: str | None,  # noqa: ARG002 - or why
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
