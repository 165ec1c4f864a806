"""The proxy of ``pgqueue chaos`` passes bytes on, and leaves no connection open behind it."""

import gc
import socket
from collections.abc import Iterator

import pytest

from pgqueue.chaos.proxy import LOCAL, Address, Proxy

MANY = 40


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """A server that accepts connections when it is told to."""
    with socket.create_server((LOCAL, 0), backlog=MANY) as server:
        yield server


def _client(proxy: Proxy) -> socket.socket:
    (port,) = proxy.ports
    return socket.create_connection((LOCAL, port), timeout=10)


def _has_ended(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def _address(server: socket.socket) -> Address:
    return Address(*server.getsockname())


def test_bytes_reach_the_server_and_its_answer_the_client(listening: socket.socket) -> None:
    with Proxy([_address(listening)]) as proxy, _client(proxy) as client:
        client.sendall(b"question")
        server, _ = listening.accept()
        with server:
            assert server.recv(8) == b"question"
            server.sendall(b"answer")
            assert client.recv(6) == b"answer"
            proxy.cut()
            assert server.recv(1) == b""
        assert _has_ended(client)
    assert proxy.opened == 1


@pytest.mark.filterwarnings("error")
def test_connections_that_have_just_been_opened_are_closed_with_it(listening: socket.socket) -> None:
    with Proxy([_address(listening)]) as proxy:
        clients = [_client(proxy) for _ in range(MANY)]
        proxy.cut()
    gc.collect()  # an open one would complain here
    for client in clients:
        with client:
            assert _has_ended(client)
