"""A TCP proxy before the test's server: a connection through it can go silent, as behind a stalled load balancer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from psycopg.conninfo import conninfo_to_dict, make_conninfo


class Proxy:
    """Passes bytes on, until it is told to hold them back.

    Attributes:
        dsn: the way through it.
        opened: how many connections were opened through it.
    """

    def __init__(self, dsn: str) -> None:
        self._server = conninfo_to_dict(dsn)
        self._flow = asyncio.Event()
        self._flow.set()
        self._pipes: set[asyncio.Task[None]] = set()
        self.opened = 0
        self.dsn = ""

    def silence_those_open(self) -> None:
        """Connections that are open stay open and pass nothing on any more; later ones are as usual."""
        self._flow.clear()
        self._flow = asyncio.Event()
        self._flow.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Proxy"]:
        """Accept connections for the length of the block."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        self.dsn = make_conninfo("", **{**self._server, "host": "127.0.0.1", "port": str(port)})
        try:
            yield self
        finally:
            server.close()
            for pipe in list(self._pipes):
                pipe.cancel()
            await asyncio.gather(*self._pipes, return_exceptions=True)
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        host, port = str(self._server["host"]), self._server.get("port", 5432)
        there, back = (
            await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
            if host.startswith("/")
            else await asyncio.open_connection(host, int(str(port)))
        )
        for source, sink in ((reader, back), (there, writer)):
            pipe = asyncio.create_task(_pass_on(source, sink, self._flow))
            self._pipes.add(pipe)
            pipe.add_done_callback(self._pipes.discard)


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter, flow: asyncio.Event) -> None:
    try:
        with suppress(OSError):
            while data := await source.read(65_536):
                await flow.wait()
                sink.write(data)
                await sink.drain()
    finally:
        sink.close()
        with suppress(OSError, asyncio.CancelledError):
            await sink.wait_closed()
