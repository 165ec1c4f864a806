"""The table of all faults. :mod:`.faults_of_processes` and :mod:`.faults_of_servers` have what each does.

A fault is a block: it begins with the block and ends with it, and the run waits inside for as long as the table says. What it
needs that a run may not have is said by name, with the reason that a person reads.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType

from pgqueue.chaos import faults_of_processes, faults_of_servers
from pgqueue.chaos.cluster import may_mount
from pgqueue.chaos.stage import ChaosStage
from pgqueue.errors import ConfigurationError
from pgqueue.values.hints import remedy

SERVER, REPLICA, DISK, POOLER, CLOCK = "server", "replica", "disk", "pooler", "clock"


@dataclass(frozen=True)
class Fault:
    """A row of the table.

    Attributes:
        name: what ``--faults`` calls it.
        does: what happens, for people.
        block: begins and ends it.
        seconds: for how long it lasts beyond what the block itself takes.
        leases: for how many leases it lasts besides.
        needs: what not every run has.
        after: is called when work goes on again, outside of what is measured.
    """

    name: str
    does: str
    block: Callable[[ChaosStage], AbstractContextManager[None]]
    seconds: float = 0.0
    leases: float = 0.0
    needs: tuple[str, ...] = ()
    after: Callable[[ChaosStage], None] | None = None


FAULTS: Mapping[str, Fault] = MappingProxyType(
    {
        fault.name: fault
        for fault in (
            Fault("kill", "a worker is killed (SIGKILL)", faults_of_processes.kill),
            Fault(
                "freeze",
                "a worker is stopped (SIGSTOP) beyond its lease, and goes on (SIGCONT)",
                faults_of_processes.freeze,
                seconds=1.0,
                leases=1.3,
            ),
            Fault("stop", "a worker is told to stop (SIGTERM)", faults_of_processes.stop),
            Fault(
                "threads", "jobs hold all threads of all workers", faults_of_processes.threads, seconds=1.0
            ),
            Fault(
                "clock",
                "a worker's clock is an hour ahead or behind",
                faults_of_processes.clock,
                seconds=2.0,
                needs=(CLOCK,),
            ),
            Fault("cut", "all connections are cut", faults_of_servers.cut),
            Fault(
                "refuse", "connections are cut, and new ones refused", faults_of_servers.refuse, seconds=1.5
            ),
            Fault("delay", "each message takes 50 ms longer", faults_of_servers.delay, seconds=2.0),
            Fault(
                "silence", "connections pass nothing on, and stay open", faults_of_servers.silence, leases=1.5
            ),
            Fault("half", "requests arrive, and answers do not", faults_of_servers.half, leases=0.7),
            Fault("backends", "the server ends the backends of all workers", faults_of_servers.backends),
            Fault(
                "pooler",
                "a worker works through PgBouncer in transaction mode, which is killed meanwhile",
                faults_of_processes.pooler,
                seconds=1.0,
                needs=(POOLER,),
            ),
            Fault("table-lock", "the table of jobs is locked", faults_of_servers.table_lock, seconds=1.5),
            Fault("row-locks", "the rows of live jobs are locked", faults_of_servers.row_locks, seconds=1.5),
            Fault("snapshot", "a snapshot is held", faults_of_servers.snapshot, seconds=2.0),
            Fault(
                "timeouts",
                "the role's statements, locks and idle transactions time out after 50 ms",
                faults_of_servers.timeouts,
                seconds=2.0,
            ),
            Fault("vacuum-full", "VACUUM FULL of the queue's tables", faults_of_servers.vacuum_full),
            Fault("reindex", "REINDEX of the queue's tables", faults_of_servers.reindex),
            Fault(
                "connections",
                "other programs take all connections of the server",
                faults_of_servers.connections,
                seconds=1.5,
                needs=(SERVER,),
            ),
            Fault(
                "restart-fast", "PostgreSQL restarts (fast)", faults_of_servers.restart_fast, needs=(SERVER,)
            ),
            Fault(
                "restart-immediate",
                "PostgreSQL crashes and restarts (immediate)",
                faults_of_servers.restart_immediate,
                needs=(SERVER,),
            ),
            Fault(
                "disk-full",
                "the server's disk is full",
                faults_of_servers.disk_full,
                seconds=3.0,
                needs=(SERVER, DISK),
            ),
            Fault(
                "failover",
                "the primary crashes, and a synchronous replica takes its place",
                faults_of_servers.failover,
                needs=(SERVER, REPLICA),
                after=faults_of_servers.follow,
            ),
            Fault(
                "failover-async",
                "the primary crashes, and a replica takes its place that lacks its last commits",
                faults_of_servers.failover_async,
                seconds=0.3,
                needs=(SERVER, REPLICA),
                after=faults_of_servers.follow,
            ),
        )
    }
)
NOT_BY_DEFAULT = frozenset({"failover-async"})
"""What loses commits by its nature: it is run where it is named."""


def choose_faults(names: Sequence[str]) -> list[Fault]:
    """The faults of these names; all that lose nothing by their nature, if there are none.

    Raises:
        ConfigurationError: there is no such fault.
    """
    for name in names:
        if name not in FAULTS:
            raise ConfigurationError(f"--faults {name}: {remedy(name, FAULTS)}")
    return [FAULTS[name] for name in names or FAULTS if names or name not in NOT_BY_DEFAULT]


def missing_tools(*, own_server: bool) -> Mapping[str, str]:
    """What this run does not have, and why, for people.

    Args:
        own_server: whether the servers are the run's own.
    """
    why: dict[str, str] = {}
    if not own_server:
        theirs = "the server is yours, and others may use it; without --dsn the run has its own"
        why |= {SERVER: theirs, REPLICA: theirs}
    if not may_mount():
        why[DISK] = "to mount a small file system for the server one must be root"
    if faults_of_processes.pgbouncer() is None:
        why[POOLER] = "the program pgbouncer is not installed"
    if faults_of_processes.faketime() is None:
        why[CLOCK] = "the library libfaketime is not installed"
    return why
