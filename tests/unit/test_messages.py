"""Messages: what is one of ours comes back equal, anything else is a WireError."""

from __future__ import annotations

import dataclasses
import json
import random
from typing import Any

import pytest

from sparktrain.errors import WireError
from sparktrain.spec import Failure
from sparktrain.wire import frames, messages
from sparktrain.wire.cluster_messages import (
    Announce,
    Arrived,
    Ask,
    Beat,
    Catch,
    Cause,
    Enough,
    Exported,
    Flush,
    Flushed,
    Forget,
    Here,
    Meet,
    NoMore,
    Pace,
    Save,
    Saved,
    Taken,
)
from sparktrain.wire.message import Message
from sparktrain.wire.messages import (
    PROTOCOL,
    Board,
    Bye,
    End,
    Failed,
    Fed,
    Hello,
    Joined,
    Leave,
    Log,
    Progress,
    Report,
    Returned,
    Stop,
    from_dict,
)

FAILURE = {**Failure("worker:0", "h", "exit", "ended").to_dict(), "tail": ["a"]}
DOOR = {"node": "chief:0", "host": "h", "port": 2, "path": "/tmp/d", "certificate": "pem"}
CARD = {"node": "chief:0", "host": "h", "port": 1, "versions": {"numpy": "2"}, "door": DOOR}
SAMPLES: list[Message] = [
    Hello(node="worker:0", run_id="r1", attempt=0, token="t"),
    Joined(host="h", pid=12),
    Log(lines=["one", "zwei ☃"], dropped=3),
    Progress(),
    Progress(1, 2, 3, 4, {"loss": 0.5, "n": 1}, 10.5, 2, 0.25, 300, 30, True),
    Report(metrics={"epoch": 1, "loss": 0.25}),
    Failed(failure=FAILURE),
    Fed(rows={"train": 3}),
    Returned(),
    Bye(),
    Board(url="http://127.0.0.1:6006/"),
    Stop(),
    Leave(),
    End(reason="another node failed", may_restart=True),
    Arrived(card=CARD),
    Meet(cluster={"chief": ["h:1"]}),
    Beat(),
    Here(),
    Exported(path="/p"),
    Taken(feed="f.0", rows=3),
    Enough(),
    Pace(table="train", steps=3, is_waiting=True),
    Catch(table="train", steps=4),
    Announce(table="train", columns=[{"name": "x"}]),
    Forget(feed="f.0"),
    NoMore(),
    Flush(feed="f", table="train"),
    Flushed(feed="f"),
    Save(feed="f"),
    Saved(feed="f"),
    Ask(),
    Cause(text="it failed"),
]
KINDS = sorted(messages._KINDS)


def make_dict(kind: str, **changes: Any) -> dict[str, Any]:
    values = next(sample.to_dict() for sample in reversed(SAMPLES) if sample.kind == kind)
    return {**values, **changes}


@pytest.mark.parametrize("message", SAMPLES, ids=lambda message: message.kind)
def test_messages_come_back_equal(message: Message) -> None:
    body = frames.encode(message.to_dict())[frames.HEADER.size :]
    back = from_dict(frames.decode_body(body))
    assert back == message
    assert type(back) is type(message)


def test_there_is_a_sample_of_every_kind() -> None:
    assert {sample.kind for sample in SAMPLES} == set(KINDS)


def test_hello_brings_the_protocol_but_its_repr_not_the_token() -> None:
    hello = Hello(node="n", run_id="r", attempt=0, token="the-token")
    assert hello.to_dict()["protocol"] == PROTOCOL
    assert "the-token" not in repr(hello)


@pytest.mark.parametrize("kind", KINDS)
def test_missing_fields_are_refused(kind: str) -> None:
    values = make_dict(kind)
    for name in values:
        if name != "kind":
            with pytest.raises(WireError, match="has the fields"):
                from_dict({key: value for key, value in values.items() if key != name})


@pytest.mark.parametrize("kind", KINDS)
def test_extra_fields_are_refused(kind: str) -> None:
    with pytest.raises(WireError, match="extra"):
        from_dict(make_dict(kind, extra=1))


@pytest.mark.parametrize("kind", [None, "", "Hello", "message", 5, [], {"a": 1}, ["hello"], True])
def test_unknown_kinds_are_refused_with_the_known_ones(kind: Any) -> None:
    with pytest.raises(WireError) as caught:
        from_dict({"kind": kind})
    assert repr(kind) in str(caught.value)
    assert ", ".join(messages._KINDS) in str(caught.value)


def test_a_message_without_a_kind_is_refused() -> None:
    with pytest.raises(WireError, match="Unknown message kind None"):
        from_dict({})


WRONG: dict[str, list[tuple[str, Any]]] = {
    "hello": [
        ("node", 1),
        ("run_id", None),
        ("attempt", -1),
        ("attempt", True),
        ("attempt", "0"),
        ("token", ["t"]),
        ("protocol", 1.0),
    ],
    "joined": [("host", None), ("pid", "12"), ("pid", -2), ("pid", 1.5)],
    "log": [("lines", "text"), ("lines", [1]), ("lines", None), ("dropped", -1)],
    "progress": [
        ("epoch", -1),
        ("epochs", "3"),
        ("step", 1.5),
        ("steps", False),
        ("metrics", None),
        ("metrics", {"loss": "low"}),
        ("metrics", {"ok": True}),
        ("metrics", [1.0]),
        ("examples_per_s", "fast"),
        ("steps_per_s", []),
        ("input_wait", "long"),
        ("rows", -5),
        ("total_steps", {}),
        ("ended", None),
        ("ended", 1),
        ("ended", "true"),
    ],
    "fed": [("rows", None), ("rows", {"train": "3"})],
    "report": [("metrics", 1), ("metrics", {"loss": None})],
    "failed": [
        ("failure", None),
        ("failure", {}),
        ("failure", {**FAILURE, "node": 3}),
        ("failure", {**FAILURE, "what": None}),
        ("failure", {key: value for key, value in FAILURE.items() if key != "host"}),
    ],
    "end": [("reason", None), ("reason", 3), ("may_restart", 1)],
    "arrived": [
        ("card", None),
        ("card", {**CARD, "host": 1}),
        ("card", {**CARD, "port": "1"}),
        ("card", {**CARD, "versions": {"numpy": 2}}),
        ("card", {**CARD, "versions": None}),
        ("card", {**CARD, "door": None}),
        *(("card", {**CARD, "door": {**DOOR, name: None}}) for name in DOOR),
    ],
    "meet": [
        ("cluster", None),
        ("cluster", {"chief": "h:1"}),
        ("stores", {}),
        ("stores", ["door"]),
    ],
    "export": [("path", 1)],
    "taken": [("feed", 1), ("rows", -1)],
    "pace": [("table", None), ("steps", 1.5), ("is_waiting", 1)],
    "catch": [("table", 1), ("steps", "1")],
    "no_more": [("table", None)],
    "flush": [("feed", 1), ("table", None)],
    "flushed": [("feed", 1)],
    "save": [("feed", None)],
    "saved": [("feed", 1)],
    "announce": [("table", 1), ("columns", {}), ("columns", ["x"])],
    "forget": [("feed", None)],
    "board": [("url", None), ("problem", 3)],
    "cause": [("text", None)],
}


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [(kind, name, value) for kind, pairs in WRONG.items() for name, value in pairs],
)
def test_fields_of_the_wrong_type_are_refused_by_name(kind: str, name: str, value: Any) -> None:
    with pytest.raises(WireError, match=f"A {kind} message has {name}="):
        from_dict(make_dict(kind, **{name: value}))


def test_every_field_of_every_kind_is_checked() -> None:
    for kind, cls in messages._KINDS.items():
        assert set(cls.checks) == {name for name, _ in WRONG.get(kind, [])}


def test_a_long_wrong_value_is_cut_in_the_text() -> None:
    with pytest.raises(WireError) as caught:
        from_dict(make_dict("joined", pid="9" * 10_000))
    assert len(str(caught.value)) < 300


WRONG_FAILURES: list[tuple[str, Any]] = [
    *((name, value) for name in ("node", "host", "kind", "what") for value in (None, 3)),
    ("exit_code", "1"),
    ("exit_code", [1]),
    ("exit_code", 1.5),
    ("exit_code", True),
    ("signal", -9),
    ("signal", 9.5),
    ("signal", True),
    ("traceback", 5),
    ("traceback", None),
    ("tail", 5),
    ("tail", None),
    ("tail", "text"),
    ("tail", [1]),
    ("is_echo", "no"),
    ("is_echo", 1),
    ("is_echo", None),
    ("differences", 3),
    ("differences", ["numpy"]),
    ("differences", {"numpy": 3}),
    ("differences", {"numpy": {"1.0": "chief:0"}}),
    ("differences", {"numpy": {"1.0": [1]}}),
]


@pytest.mark.parametrize(("name", "value"), WRONG_FAILURES)
def test_a_failure_that_cannot_be_one_is_refused(name: str, value: Any) -> None:
    with pytest.raises(WireError, match="A failed message has failure="):
        from_dict(make_dict("failed", failure={**FAILURE, name: value}))


def test_every_field_of_a_failure_is_checked() -> None:
    names = {field.name for field in dataclasses.fields(Failure)}
    assert {name for name, _ in WRONG_FAILURES} == names


@pytest.mark.parametrize("name", ["node", "host", "kind", "what", "traceback", "tail", "is_echo"])
def test_a_failure_without_a_field_that_is_never_none_is_refused(name: str) -> None:
    failure = {key: value for key, value in FAILURE.items() if key != name}
    with pytest.raises(WireError, match="A failed message has failure="):
        from_dict(make_dict("failed", failure=failure))


def test_a_failure_of_a_node_comes_back_whole() -> None:
    differences = {"numpy": {"1.0": ("chief:0",)}}
    failure = Failure("n", "h", "exit", "w", 1, 9, "text", ("a",), True, differences)
    back = from_dict(json.loads(json.dumps(Failed(failure=failure.to_dict()).to_dict())))
    assert isinstance(back, Failed)
    assert Failure.from_dict(back.failure).to_dict() == {
        **failure.to_dict(),
        "differences": {"numpy": {"1.0": ["chief:0"]}},
    }


def make_random(rng: random.Random, depth: int = 0) -> Any:
    choice = rng.randrange(9 if depth < 3 else 6)
    if choice == 6:
        return [make_random(rng, depth + 1) for _ in range(rng.randrange(4))]
    if choice >= 7:
        names = ["node", "host", "kind", "what", "tail", "a", ""]
        return {rng.choice(names): make_random(rng, depth + 1) for _ in range(rng.randrange(5))}
    some = (None, rng.random() < 0.5, rng.randint(-5, 5), rng.uniform(-1e9, 1e9), "x", "\ud800")
    return some[choice]


def test_random_fields_give_a_message_or_a_wire_error() -> None:
    rng = random.Random(20240502)
    num_taken = 0
    for _ in range(4000):
        kind = rng.choice([*KINDS, "other"])
        values = make_dict(kind) if kind != "other" else {"kind": make_random(rng)}
        for name in list(values)[1:]:
            if rng.random() < 0.4:
                values[name] = make_random(rng)
        if rng.random() < 0.1:
            values[rng.choice(["", "extra", "kind"])] = make_random(rng)
        try:
            message = from_dict(json.loads(json.dumps(values)))
        except WireError:
            continue
        num_taken += 1
        assert from_dict(message.to_dict()) == message
    assert num_taken > 500
