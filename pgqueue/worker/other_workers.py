"""What a worker logs of other workers: those that are alive and start no jobs.

Health checks, metrics and alerts name them, too. The log of the other workers is for programs that have none of these.
"""

import os
import socket

from pgqueue.store.jobs import control
from pgqueue.worker.connection import Connections
from pgqueue.worker.joblog import worker_log

log = worker_log()


class OtherWorkers:
    """Logs each of them once when it starts no jobs, and once when it does again or is gone."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._logged: frozenset[str] = frozenset()

    @property
    def logged(self) -> frozenset[str]:
        """Those that were logged and are not known to start jobs again."""
        return self._logged

    async def run_once(self) -> None:
        """Ask which workers have a problem, and log what is new."""
        problems = await self._connections.upkeep.run(control.worker_problems())
        mine = f"{socket.gethostname()}:{os.getpid()}"
        silent = {f"{one.host}:{one.pid}": one for one in problems if not one.serves}
        silent.pop(mine, None)  # its own log says more
        for name in sorted(silent.keys() - self._logged):
            log.warning("another worker starts no jobs", extra={"worker": name, "problem": str(silent[name])})
        for name in sorted(self._logged - silent.keys()):
            log.info("another worker starts jobs again, or is gone", extra={"worker": name})
        self._logged = frozenset(silent)
