"""Framing: length, then JSON; everything else is refused."""

from __future__ import annotations

import ast
import json
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import sparktrain
from sparktrain.errors import WireError
from sparktrain.wire import frames


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.settimeout(5)
    theirs.settimeout(5)
    with ours, theirs:
        yield ours, theirs


def test_a_frame_is_four_bytes_of_length_and_json() -> None:
    assert frames.encode({"kind": "bye", "n": 1}) == b'\x00\x00\x00\x14{"kind":"bye","n":1}'


@pytest.mark.parametrize(
    "values", [{}, {"a": [1, 2.5, None, True]}, {"text": "Grüße ☃ \n\x00"}, {"deep": {"a": {}}}]
)
def test_frames_come_back_as_they_went(values: dict[str, object]) -> None:
    data = frames.encode(values)
    header, body = data[: frames.HEADER.size], data[frames.HEADER.size :]
    assert frames.decode_header(header) == len(body)
    assert frames.decode_body(body) == values


def test_text_that_is_no_unicode_is_replaced_not_refused() -> None:
    body = frames.encode({"line": "a\udc80b"})[frames.HEADER.size :]
    assert frames.decode_body(body) == {"line": "a?b"}


def test_the_largest_frame_passes_and_one_byte_more_does_not() -> None:
    room = frames.MAX_FRAME_BYTES - len('{"a":""}')
    data = frames.encode({"a": "x" * room})
    assert frames.decode_header(data[: frames.HEADER.size]) == frames.MAX_FRAME_BYTES
    with pytest.raises(WireError, match=f"{frames.MAX_FRAME_BYTES + 1} bytes is over the limit"):
        frames.encode({"a": "x" * (room + 1)})


@pytest.mark.parametrize("length", [frames.MAX_FRAME_BYTES + 1, 2**32 - 1])
def test_a_header_over_the_limit_is_refused(length: int) -> None:
    with pytest.raises(WireError, match=str(length)):
        frames.decode_header(frames.HEADER.pack(length))


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff\xfe\x00", b"GET / HTTP/1.1", b'{"a":' + b"1" * 5000 + b"}", b"[" * 200_000],
    ids=["empty", "cut", "not text", "http", "huge number", "deep"],
)
def test_a_body_that_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(WireError, match="does not hold JSON"):
        frames.decode_body(body)


@pytest.mark.parametrize(("body", "kind"), [(b"[]", "list"), (b"1", "int"), (b"null", "NoneType")])
def test_a_body_that_is_no_object_is_refused(body: bytes, kind: str) -> None:
    with pytest.raises(WireError, match=f"a {kind}, expected an object"):
        frames.decode_body(body)


def test_reading_takes_one_frame_at_a_time(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.sendall(frames.encode({"n": 1}) + frames.encode({"n": 2}) + b"raw")
    assert frames.read_frame(ours) == {"n": 1}
    assert frames.read_frame(ours) == {"n": 2}
    assert frames.read_exactly(ours, 3) == b"raw"


@pytest.mark.parametrize("sent", [b"", b"\x00\x00", b'\x00\x00\x00\x09{"a":'])
def test_a_stream_that_ends_early_is_an_eof(
    pair: tuple[socket.socket, socket.socket], sent: bytes
) -> None:
    ours, theirs = pair
    theirs.sendall(sent)
    theirs.close()
    with pytest.raises(EOFError):
        frames.read_frame(ours)


def test_an_oversized_announcement_is_refused_before_its_body(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    theirs.sendall(frames.HEADER.pack(2**31))
    with pytest.raises(WireError, match="announces"):
        frames.read_frame(ours)


def test_random_bytes_give_an_object_or_a_wire_error() -> None:
    rng = random.Random(20240501)
    valid = json.dumps({"kind": "log", "lines": ["a", "é"], "dropped": 0}).encode()
    for case in range(4000):
        if case % 2:
            body = rng.randbytes(rng.randrange(40))
        else:  # a good one with a few bytes changed
            changed = bytearray(valid)
            for _ in range(rng.randint(1, 4)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            body = bytes(changed)
        try:
            assert isinstance(frames.decode_body(body), dict)
        except WireError:
            continue


def test_the_wire_imports_nothing_that_unpickles() -> None:
    imported = set()
    for path in (Path(sparktrain.__file__).parent / "wire").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {name.name.split(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(str(node.module).split(".")[0])
    assert "json" in imported
    assert imported.isdisjoint({"pickle", "cloudpickle", "marshal", "shelve", "dill", "joblib"})
