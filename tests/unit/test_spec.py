"""The values that cross process borders."""

from __future__ import annotations

import dataclasses
import json
import pickle

import pytest

from sparktrain.spec import (
    ControlAddress,
    Failure,
    NodeResult,
    NodeSpec,
    RunSpec,
    make_cluster,
    make_nodes,
    make_tf_config,
)

CLUSTER = {"chief": ["a:1"], "worker": ["b:2", "c:3"], "evaluator": ["d:4"]}


def make_spec(**changes: object) -> RunSpec:
    values = {
        "run_id": "r1",
        "attempt": 0,
        "nodes": make_nodes(2),
        "num_workers": 2,
        "run_dir": "/runs/r1",
        "function": b"pickled-function",
        "env": {"API_KEY": "hush-hush"},
    }
    return RunSpec(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("num_workers", "evaluator", "names"),
    [
        (1, False, ["chief:0"]),
        (3, False, ["chief:0", "worker:0", "worker:1"]),
        (1, True, ["chief:0", "evaluator:0"]),
        (2, True, ["chief:0", "worker:0", "evaluator:0"]),
    ],
)
def test_nodes_are_a_chief_then_workers_then_the_evaluator(
    num_workers: int, evaluator: bool, names: list[str]
) -> None:
    assert [node.name for node in make_nodes(num_workers, evaluator)] == names


def test_ranks_count_those_that_train_together() -> None:
    assert [node.rank for node in make_nodes(3, evaluator=True)] == [0, 1, 2, None]


def test_tf_config_leaves_the_evaluator_out_of_the_cluster() -> None:
    config = make_tf_config(NodeSpec("worker", 1), CLUSTER)
    assert config == {
        "cluster": {"chief": ["a:1"], "worker": ["b:2", "c:3"]},
        "task": {"type": "worker", "index": 1},
    }


def test_the_evaluators_own_tf_config_still_names_its_task() -> None:
    config = make_tf_config(NodeSpec("evaluator", 0), CLUSTER)
    assert config["task"] == {"type": "evaluator", "index": 0}
    assert "evaluator" not in config["cluster"]
    assert json.loads(json.dumps(config)) == config


@pytest.mark.parametrize(
    ("num_workers", "distribution", "wanted"),
    [(1, "auto", False), (2, "auto", True), (2, "none", False)],
)
def test_a_strategy_is_needed_by_several_workers_unless_refused(
    num_workers: int, distribution: str, wanted: bool
) -> None:
    assert make_spec(num_workers=num_workers, distribution=distribution).needs_strategy is wanted


def test_spec_travels_whole() -> None:
    spec = make_spec(control=ControlAddress("h", 1, "token", "pem"))
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_repr_tells_no_secret() -> None:
    spec = make_spec(control=ControlAddress("host-1", 4001, "the-token", "the-pem"))
    text = repr(spec)
    assert "host-1" in text
    for secret in ("the-token", "the-pem", "hush-hush", "pickled-function"):
        assert secret not in text


def test_specs_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        make_spec().attempt = 1  # type: ignore[misc]


def test_failure_survives_json() -> None:
    failure = Failure(
        node="worker:0",
        host="h",
        kind="exception",
        what="ValueError: no",
        exit_code=1,
        traceback="text",
        tail=("a", "b"),
        is_echo=True,
    )
    assert Failure.from_dict(json.loads(json.dumps(failure.to_dict()))) == failure


def test_failure_with_version_differences_survives_json() -> None:
    differences = {"numpy": {"1.0": ("chief:0",), "2.0": ("worker:0",)}}
    failure = Failure("chief:0", "h", "versions", "differ", differences=differences)
    back = Failure.from_dict(json.loads(json.dumps(failure.to_dict())))
    assert back.differences == {"numpy": {"1.0": ["chief:0"], "2.0": ["worker:0"]}}


def test_failure_takes_fewer_and_more_fields_than_it_has() -> None:
    few = {"node": "n", "host": "h", "kind": "lost", "what": "gone"}
    assert Failure.from_dict({**few, "tail": None, "later": 1}) == Failure(**few)


def test_node_result_has_the_nodes_name() -> None:
    assert NodeResult("worker", 2, "h", 1.5, exit=0).name == "worker:2"


def test_the_cluster_has_addresses_by_role_and_index() -> None:
    nodes = make_nodes(3, evaluator=True, num_ps=1)
    addresses = {node.name: (f"h{i}", 4000 + i) for i, node in enumerate(nodes)}
    assert make_cluster(nodes, addresses) == {
        "chief": ["h0:4000"],
        "worker": ["h1:4001", "h2:4002"],
        "evaluator": ["h3:4003"],
        "ps": ["h4:4004"],
    }


def test_ipv6_addresses_are_put_in_brackets() -> None:
    addresses = {"chief:0": ("fe80::1", 4000), "worker:0": ("10.0.0.1", 4001)}
    cluster = make_cluster(make_nodes(2), addresses)
    assert cluster == {"chief": ["[fe80::1]:4000"], "worker": ["10.0.0.1:4001"]}


def test_a_missing_address_is_noticed() -> None:
    with pytest.raises(KeyError, match="worker:0"):
        make_cluster(make_nodes(2), {"chief:0": ("a", 1)})


def test_nodes_without_a_chief() -> None:
    nodes = make_nodes(2, num_ps=1, chief=None)
    assert [(node.name, node.rank) for node in nodes] == [
        ("worker:0", 0),
        ("worker:1", 1),
        ("ps:0", None),
    ]
    master = make_nodes(2, chief="master")
    assert [(node.name, node.rank) for node in master] == [("master:0", 0), ("worker:0", 1)]
