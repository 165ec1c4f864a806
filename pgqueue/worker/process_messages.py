"""What a worker and a process in which it runs attempts tell each other."""

from typing import Any, Final

import msgspec

from pgqueue.app.context import AttemptHost
from pgqueue.store.connections.database import Database
from pgqueue.store.connections.replica import ReplicatedDatabase
from pgqueue.store.shards.sharded import ShardMember
from pgqueue.values.jobs import verdict as verdicts
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.verdict import Stop, Verdict
from pgqueue.worker.attempt import Attempt, task_of
from pgqueue.worker.joblog import worker_log

LENGTH_BYTES: Final = 4
LONGEST: Final = 1 << 26
"""Bytes of a message: a longer one is none of the process."""
STOPS: Final = {b"s": Stop.SHUTDOWN, b"c": Stop.CANCEL}
"""What the worker writes on the pipe by which it stops a process, and why it does so."""


class ProcessOrder(msgspec.Struct, frozen=True):
    """What the process is told of an attempt.

    Attributes:
        claim: the attempt.
        timeout: seconds that it may take; None: as long as it likes.
        memory: bytes that it may take beyond what the app takes; None: no limit.
        dsn: where the database is; None: where the app says, and so for the next three.
        schema: where the tables are.
        behind_pooler: whether that is a transaction pooler.
        direct_dsn: how to reach the server past it.
        module: where the task's function is, if the app's module does not lead to it; None: not known.
        log_level: the lowest level to log.
    """

    claim: Claim
    timeout: float | None
    memory: int | None
    dsn: str | None
    schema: str | None
    behind_pooler: bool
    direct_dsn: str | None
    module: str | None
    log_level: int

    @classmethod
    def of(cls, host: AttemptHost, attempt: Attempt, memory: int | None = None) -> "ProcessOrder":
        """The order of an attempt."""
        database: Any = host.database.itself
        own = type(database) in {Database, ReplicatedDatabase, ShardMember}
        module = getattr(task_of(attempt).function, "__module__", None)
        timeout = attempt.context.timeout
        return cls(
            attempt.claim,
            None if timeout is None else timeout.total_seconds(),
            memory,
            database.dsn if own else None,
            database.catalogue.schema if own else None,
            own and database.behind_pooler,
            database.listen_dsn if own and database.behind_pooler else None,
            module if isinstance(module, str) and module != "__main__" else None,
            worker_log().getEffectiveLevel(),
        )


class ProcessAnswer(msgspec.Struct, frozen=True):
    """How the attempt ended, as the process says it.

    Attributes:
        kind: the name of the verdict's class; None: nothing is to be recorded.
        verdict: its fields.
        completed: for how many seconds the attempt had run when its own transaction had completed the job; None: it has not.
        out_of_memory: whether the limit of memory was reached.
        memory: the resident memory of the process in bytes, if that limit was reached; None: the system does not say.
        ends: whether the process ends now, since the attempt was interrupted: what the function has started may go on in it.
    """

    kind: str | None = None
    verdict: msgspec.Raw = msgspec.Raw(b"\xc0")
    completed: float | None = None
    out_of_memory: bool = False
    memory: int | None = None
    ends: bool = False

    @classmethod
    def of(
        cls,
        verdict: Verdict | None,
        *,
        completed: float | None = None,
        out_of_memory: bool = False,
        memory: int | None = None,
        ends: bool = False,
    ) -> "ProcessAnswer":
        """The answer that carries a verdict."""
        kind = None if verdict is None else type(verdict).__name__
        told = msgspec.Raw(msgspec.msgpack.encode(verdict))
        return cls(kind, told, completed, out_of_memory, memory, ends)

    def read(self, claim: Claim) -> Verdict | None:
        """The verdict that it carries."""
        if self.kind is None:
            return None
        found: Verdict = msgspec.msgpack.decode(self.verdict, type=getattr(verdicts, self.kind))
        return msgspec.structs.replace(found, claim=claim)


def frame_message(data: bytes) -> bytes:
    """A message with its length."""
    return len(data).to_bytes(LENGTH_BYTES, "big") + data
