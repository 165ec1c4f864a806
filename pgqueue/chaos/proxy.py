"""A TCP proxy between the processes and the servers: it cuts, delays, silences and halves connections.

It runs on an event loop in a thread of its own. Each server has a port; a DSN that leads through the proxy names all
ports.
"""

import asyncio
import threading
from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar, cast

from psycopg.conninfo import conninfo_to_dict, make_conninfo

T = TypeVar("T")
Pipe: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
LOCAL = "127.0.0.1"
CHUNK = 1 << 16
TURNS = 5
"""Turns of the event loop at the end: in these, connections that were just accepted are refused, and aborted ones closed."""


class Address(NamedTuple):
    """Where a server listens; a host that begins with ``/`` is the folder of its socket."""

    host: str
    port: int

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to it."""
        if self.host.startswith("/"):
            return await asyncio.open_unix_connection(f"{self.host}/.s.PGSQL.{self.port}")
        return await asyncio.open_connection(self.host, self.port)


class Proxy:
    """Passes bytes on, in the way that it was told. Used from threads other than its own.

    Attributes:
        ports: one for each address, in their order.
        opened: how many connections were opened through it.
    """

    def __init__(self, addresses: Sequence[Address]) -> None:
        self.ports: list[int] = []
        self.opened = 0
        self._addresses = addresses
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._servers: list[asyncio.Server] = []
        self._served: set[asyncio.Task[None]] = set()
        self._delay = 0.0
        self._refuses = False
        self._flows = {"requests": asyncio.Event(), "answers": asyncio.Event()}

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """End all connections that are open, at once and without a word."""
        self._call(self._cut())

    def refuse(self, *, refuses: bool) -> None:
        """Begin or cease to close each new connection at once."""
        self._refuses = refuses

    def delay(self, seconds: float) -> None:
        """Hold each piece of data back for this long."""
        self._delay = seconds

    def silence(self, *directions: str) -> None:
        """Pass nothing on in these directions (``requests``, ``answers``); without one, all flows again."""
        self._call(self._silence(directions))

    async def _listen(self) -> None:
        for flow in self._flows.values():
            flow.set()
        for address in self._addresses:

            async def serve(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to: Address = address
            ) -> None:
                await self._serve(reader, writer, to)

            server = await asyncio.start_server(serve, LOCAL, 0)
            self._servers.append(server)
            self.ports.append(server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to: Address) -> None:
        """Keep a connection until one side ends it, or until it is cut. Then both sides are closed."""
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._served.add(task)
        self.opened += 1
        try:
            if self._refuses:
                return
            there, back = await to.connect()
            try:
                await self._pass_both((reader, back), (there, writer))
            finally:
                back.transport.abort()
        except (OSError, asyncio.CancelledError):  # asyncio would log that it was cut
            return
        finally:
            writer.transport.abort()
            self._served.discard(task)

    async def _pass_both(self, requests: Pipe, answers: Pipe) -> None:
        pipes = [
            asyncio.create_task(self._pass_on(self._flows["requests"], *requests)),
            asyncio.create_task(self._pass_on(self._flows["answers"], *answers)),
        ]
        try:
            await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _end(pipes)

    async def _pass_on(
        self, flow: asyncio.Event, source: asyncio.StreamReader, sink: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while data := await source.read(CHUNK):
                if self._delay:
                    await asyncio.sleep(self._delay)
                await flow.wait()
                sink.write(data)
                await sink.drain()

    async def _silence(self, directions: Sequence[str]) -> None:
        for name, flow in self._flows.items():
            (flow.clear if name in directions else flow.set)()

    async def _cut(self) -> None:
        await _end(list(self._served))

    async def _close(self) -> None:
        self._refuses = True
        for server in self._servers:
            server.close()
        for _ in range(TURNS):
            await self._cut()
            await asyncio.sleep(0)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _end(tasks: Collection[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def addresses_of(dsn: str) -> list[Address]:
    """The servers that a DSN names."""
    named = conninfo_to_dict(dsn)
    hosts = str(named.get("hostaddr") or named.get("host") or "/var/run/postgresql").split(",")
    ports = str(named.get("port") or 5432).split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    return [Address(host, int(port)) for host, port in zip(hosts, ports, strict=True)]


def through(dsn: str, ports: Sequence[int]) -> str:
    """The DSN by way of the proxy: only the addresses differ, so that TLS still checks the names of the hosts.

    Args:
        dsn: of the servers.
        ports: the proxy's, in their order.
    """
    named = conninfo_to_dict(dsn)
    hosts = str(named.get("host") or "").split(",")
    hosts = [LOCAL if not host or host.startswith("/") else host for host in hosts]
    changed: dict[str, Any] = {
        "host": ",".join(hosts),
        "hostaddr": ",".join([LOCAL] * len(ports)),
        "port": ",".join(map(str, ports)),
    }
    return make_conninfo("", **{**named, **changed})
