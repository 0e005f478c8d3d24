"""The server that nodes and outsiders speak to: any number at once, for as long as they like."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from tensorflowonspark import reservation


@pytest.fixture
def server() -> Iterator[reservation.Server]:
    one = reservation.Server(3)
    one.start()
    yield one
    one.stop()


def address(server: reservation.Server) -> tuple[str, int]:
    assert server._socket is not None
    return "127.0.0.1", server._socket.getsockname()[1]


def test_many_clients_at_once(server: reservation.Server) -> None:
    clients = [reservation.Client(address(server)) for _ in range(20)]  # all stay connected
    for number, client in enumerate(clients[-3:]):
        assert client.register({"node": number, "authkey": b"\x00\xff"}) == "OK"
    assert clients[0].await_reservations() == [
        {"node": number, "authkey": b"\x00\xff"} for number in range(3)
    ]
    assert server.await_reservations(None) == clients[1].get_reservations()
    assert clients[2]._request("OTHER") == "ERR"
    assert clients[3].request_stop() == "OK" and server.done
    for client in clients:
        client.close()


def test_an_error_of_whoever_starts_the_nodes_is_raised(server: reservation.Server) -> None:
    with pytest.raises(Exception, match="the nodes did not start: no memory"):
        server.await_reservations(None, status={"error": "no memory"})
    with pytest.raises(Exception, match=r"timed out waiting for reservations.*3 of 3"):
        server.await_reservations(None, timeout=0.01)


def test_a_client_comes_back(server: reservation.Server) -> None:
    client = reservation.Client(address(server))
    client.sock.shutdown(socket.SHUT_RDWR)
    assert client.register("node") == "OK"
    server.stop()
    with pytest.raises(ConnectionError, match="did not answer QINFO in 3 attempts"):
        client.get_reservations()
    client.close()


def test_what_is_no_message_only_ends_its_own_connection(server: reservation.Server) -> None:
    client = reservation.Client(address(server))
    for bad in (struct.pack(">I", 1 << 31), struct.pack(">I", 3) + b"{{{", b"\x80\x04."):
        with socket.create_connection(address(server), 5) as stranger:
            stranger.sendall(bad)
            stranger.shutdown(socket.SHUT_WR)
            assert stranger.recv(100) == b""
    # Two messages in one piece, and one in two.
    data = json.dumps({"type": "QUERY"}).encode()
    message = struct.pack(">I", len(data)) + data
    with socket.create_connection(address(server), 5) as stranger:
        stranger.sendall(message + message + message[:2])
        sockets = reservation.MessageSocket()
        assert [sockets.receive(stranger) for _ in range(2)] == [False, False]
        stranger.sendall(message[2:])
        assert sockets.receive(stranger) is False
    assert client.get_reservations() == []
    client.close()


def test_what_json_cannot_hold(server: reservation.Server) -> None:
    client = reservation.Client(address(server))
    with pytest.raises(TypeError, match="expected what JSON can hold, or bytes"):
        client.register({"lock": threading.Lock()})
    client.close()


def test_ports_and_host_are_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setenv("TFOS_SERVER_HOST", "driver.example")
        monkeypatch.setenv("TFOS_SERVER_PORT", f"{port}-{port + 20}")
        server = reservation.Server(1)
        try:
            host, found = server.start()
            assert host == "driver.example" and port < found <= port + 20
        finally:
            server.stop()
        monkeypatch.setenv("TFOS_SERVER_PORT", str(port))
        with pytest.raises(Exception, match=f"no port of TFOS_SERVER_PORT={port} is free"):
            reservation.Server(1).start()
