"""``pgqueue dashboard``: a server of the dashboard, on this machine alone or behind a token.

What it shows is in :mod:`pgqueue.dashboard`. The server is Waitress: threads, bounded requests, no code of ours.
"""

import ipaddress
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import click

from pgqueue.app.pgqueue import PgQueue
from pgqueue.cli.app import with_queue
from pgqueue.cli.signals import ENDING, end_like_an_interrupt
from pgqueue.errors import ConfigurationError, InvalidOption
from pgqueue.store.shards.sharded import ShardedDatabase

THREADS: Final = 8
CONNECTIONS: Final = 1_000
IDLE_FOR: Final = 10
"""Seconds after which a connection without a request is closed: many idle connections must not keep other users out."""
PORT: Final = 8765
CLOSES_IN: Final = 5.0
"""Seconds that a server in a thread has to end."""
LOOPBACK: Final = "127.0.0.1"


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=PORT, show_default=True, help="0: a free one."
)
@click.option("--host", "address", default=LOOPBACK, show_default=True, help="The address to listen on.")
@click.option(
    "--token",
    envvar="PGQUEUE_DASHBOARD_TOKEN",
    show_envvar=True,
    help="What users type to log in, at least 16 characters. Needed for every address but those of this machine.",
)
@click.option(
    "--allow-actions", is_flag=True, help="Allow retries, cancels, pauses; without it, it only reads."
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="HOST",
    help="A host name under which it answers, beside the address; give it again for more.",
)
@click.option("--trust-proxy", is_flag=True, help="One proxy in front of it sets the X-Forwarded headers.")
@with_queue
def dashboard(
    queue: PgQueue,
    /,
    *,
    port: int,
    address: str,
    token: str | None,
    allow_actions: bool,
    names: tuple[str, ...],
    trust_proxy: bool,
) -> None:
    """Show the queue in a browser: jobs, dead jobs, workers, and more.

    Without a token it listens on this machine only, and each of its users may see everything.
    """
    local = _is_loopback(address)
    if token is None and not local:
        raise InvalidOption(
            f"--host {address}: other machines could reach it, and nothing says who may see it; give --token"
        )
    if token is None and trust_proxy:
        raise InvalidOption(
            "--trust-proxy: users come from other machines, and nothing says who they are; give --token"
        )
    queue.database.verify()
    server = _server(
        _app(queue, token, names=names, local=local, actions=allow_actions, trust_proxy=trust_proxy),
        address,
        port,
    )
    shown = f"[{address}]" if ":" in address else address
    mode = "" if allow_actions else " (read-only: --allow-actions lets it change something)"
    with suppress(KeyboardInterrupt), end_like_an_interrupt(*ENDING):
        click.echo(f"dashboard on http://{shown}:{server.effective_port}/{mode}; Ctrl-C stops it")
        server.run()
    server.close()


@contextmanager
def serve_dashboard(queue: PgQueue) -> Iterator[str]:
    """A dashboard of a queue for the length of a block, for users of this machine, who can change nothing.

    Args:
        queue: which; it is closed at the end.

    Yields:
        The address of its first page.
    """
    app = _app(queue, None, names=(), local=True, actions=False, trust_proxy=False)
    try:
        server = _server(app, LOOPBACK, PORT)
    except ConfigurationError:  # another dashboard has the port
        server = _server(app, LOOPBACK, 0)
    thread = threading.Thread(target=server.run, name="pgqueue-dashboard", daemon=True)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.effective_port}/"
    finally:
        server.close()
        thread.join(CLOSES_IN)
        queue.close()


def _app(
    queue: PgQueue,
    token: str | None,
    *,
    names: tuple[str, ...],
    local: bool,
    actions: bool,
    trust_proxy: bool,
) -> Any:  # noqa: ANN401 - a dashboard, which is imported here
    from pgqueue.dashboard import LOOPBACK_HOSTS, Dashboard, on_this_machine  # noqa: PLC0415 - an extra

    shards = _shards(queue)
    return Dashboard(
        None if shards else queue,
        queues=shards or None,
        token=token,
        login=on_this_machine if token is None else None,
        actions=actions,
        hosts=[*LOOPBACK_HOSTS, *names] if local else names or None,
        trust_proxy=trust_proxy,
    )


def _shards(queue: PgQueue) -> dict[str, PgQueue]:
    if not isinstance(queue.database.itself, ShardedDatabase):
        return {}
    numbers = sorted(one.state.number for one in queue.shards.list() if one.state is not None)
    return {f"shard {number}": queue.shard(number) for number in numbers}


def _server(app: Any, address: str, port: int) -> Any:  # noqa: ANN401 - Waitress has no types
    from waitress import create_server  # noqa: PLC0415 - an extra

    try:
        return create_server(
            app,
            host=address,
            port=port,
            threads=THREADS,
            connection_limit=CONNECTIONS,
            channel_timeout=IDLE_FOR,
            cleanup_interval=IDLE_FOR // 2,
            asyncore_use_poll=True,
            ident=None,
            clear_untrusted_proxy_headers=False,
        )
    except OSError as error:
        raise ConfigurationError(f"--host {address} --port {port}: {error.strerror or error}") from error


def _is_loopback(address: str) -> bool:
    try:
        found = socket.getaddrinfo(address, None)
    except OSError as error:
        raise ConfigurationError(f"--host {address}: {error.strerror or error}") from error
    return all(ipaddress.ip_address(one[4][0]).is_loopback for one in found)
