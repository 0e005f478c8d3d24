"""A run's token, key and certificate: its own, and never to be seen."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

import pytest

from sparktrain.spec import ControlAddress, RunSpec, make_nodes
from sparktrain.wire.client import ControlClient
from sparktrain.wire.credentials import Credentials, client_context
from sparktrain.wire.messages import Hello
from sparktrain.wire.server import ControlServer

CREDENTIALS = Credentials.make()


def test_secrets_are_in_no_repr() -> None:
    token, certificate = CREDENTIALS.token, CREDENTIALS.certificate
    address = ControlAddress("127.0.0.1", 1, token, certificate)
    hello = Hello("chief:0", "run-1", 0, token)
    spec = RunSpec("run-1", 0, make_nodes(1), 1, "/runs", b"", {"KEY": token}, control=address)
    server = ControlServer("127.0.0.1", 0, "run-1", CREDENTIALS, lambda *told: None, print)
    with server, ControlClient(None, hello, print, 10) as client:
        for value in (CREDENTIALS, address, hello, spec, client, server):
            for text in (repr(value), str(value), f"{value}"):
                assert token not in text
                assert CREDENTIALS.key not in text
                assert certificate not in text


def test_every_run_has_a_token_a_key_and_a_certificate_of_its_own() -> None:
    runs = [Credentials.make() for _ in range(3)]
    assert len({one.token for one in runs}) == 3
    assert len({one.key for one in runs}) == 3
    assert len({one.certificate for one in runs}) == 3
    assert all(len(one.token) >= 40 for one in runs)


def test_the_key_is_left_in_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert isinstance(CREDENTIALS.server_context(), ssl.SSLContext)
    assert list(tmp_path.rglob("*")) == []


def test_the_client_demands_the_certificate_of_the_run() -> None:
    context = client_context(CREDENTIALS.certificate)
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.cert_store_stats()["x509"] == 1
