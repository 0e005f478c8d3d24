"""Every refusal before a run starts, with the value that was refused."""

from __future__ import annotations

import io
import os
import pickle
import re
import threading
from pathlib import Path
from typing import Any

import pytest

import sparktrain
from sparktrain.driver import plan as plan_module
from sparktrain.driver.arguments import check_env, check_numbers
from sparktrain.driver.function import pickle_function
from sparktrain.driver.plan import check_dynamic_allocation, check_slots, make_plan
from sparktrain.driver.run_folder import make_run_id
from sparktrain.driver.spark_facts import slots_from_master
from sparktrain.errors import ConfigError, FunctionError, ResourceError


class Session:
    """The part of a Spark session that plans ask."""

    # Sessions of Spark Connect are known by their module, and asked for their configuration
    # only: no Java here.
    __module__ = "pyspark.sql.connect.session"

    def __init__(self, **conf: str) -> None:
        self._conf = {name.replace("_", "."): value for name, value in conf.items()}

    @property
    def conf(self) -> Session:
        return self

    def get(self, key: str, default: Any = None) -> Any:
        return self._conf.get(key, default)


def plan_run(spark: Any, **changes: Any) -> plan_module.Plan:
    wishes: dict[str, Any] = {
        "num_workers": 1,
        "args": None,
        "evaluator": False,
        "run_dir": None,
        "max_restarts": 0,
        "timeout_s": None,
        "env": None,
        "settings": {"slot_wait_s": 0},
    }
    return make_plan(spark, lambda ctx: ctx.args, **{**wishes, **changes})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_workers", 0),
        ("num_workers", 2.0),
        ("num_workers", True),
        ("max_restarts", -1),
        ("timeout_s", 0),
        ("timeout_s", -1.5),
        ("timeout_s", "60"),
        ("timeout_s", float("nan")),
        ("timeout_s", float("inf")),
        ("timeout_s", True),
    ],
)
def test_numbers_that_cannot_be_are_refused_by_name_and_value(name: str, value: Any) -> None:
    numbers: dict[str, Any] = {"num_workers": 1, "max_restarts": 0, "timeout_s": None}
    with pytest.raises(ConfigError, match=re.escape(f"run() got {name}={value!r}.")):
        check_numbers(**{**numbers, name: value})


def test_numbers_that_can_be_are_taken() -> None:
    check_numbers(1, 0, None)
    check_numbers(64, 10, 0.5)


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({"THREADS": 4}, "THREADS"),
        ({"A": "1", "B": None, "C": 2}, "B, C"),
        ({5: "x"}, "5"),
        ([("A", "1")], "list"),
        ("A=1", "str"),
    ],
)
def test_an_environment_that_is_not_all_text_is_refused(env: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"not all text: {named}. Expected a dict")):
        check_env(env)


def test_an_environment_of_text_is_taken_and_its_values_are_never_told() -> None:
    check_env(None)
    check_env({})
    check_env({"A": "1"})
    with pytest.raises(ConfigError) as caught:
        check_env({"API_KEY": b"secret-value"})
    assert "secret-value" not in str(caught.value)


def test_a_function_and_its_arguments_come_back() -> None:
    train_fn, args = pickle.loads(pickle_function(lambda ctx: ctx + 1, {"epochs": 2}))
    assert train_fn(1) == 2
    assert args == {"epochs": 2}


@pytest.mark.parametrize(
    "changes",
    [
        {"num_workers": 0},
        {"env": {"A": 1}},
        {"run_dir": 5},
        {"train_fn": "train"},
    ],
)
def test_a_cluster_is_refused_by_its_own_name(changes: dict[str, Any]) -> None:
    wishes: dict[str, Any] = {"train_fn": lambda ctx: None, "num_workers": 1, **changes}
    with pytest.raises(ConfigError, match=r"^cluster\(\) got "):
        sparktrain.cluster(wishes.pop("train_fn"), spark=Session(), **wishes)


@pytest.mark.parametrize("value", [None, 5, "train", {"f": len}])
def test_what_cannot_be_called_is_refused(value: Any) -> None:
    with pytest.raises(FunctionError) as caught:
        pickle_function(value, None)
    assert f"run() got {value!r} of type {type(value).__name__}" in str(caught.value)


def test_a_function_that_holds_a_lock_or_an_open_file_is_refused(tmp_path: Path) -> None:
    lock = threading.Lock()
    with pytest.raises(FunctionError) as caught:
        pickle_function(lambda ctx: lock, None)
    assert "The function 'test_a_function_that_holds_a_lock" in str(caught.value)
    assert "cannot pickle '_thread.lock' object" in str(caught.value)
    with (tmp_path / "out").open("w") as stream:
        with pytest.raises(FunctionError, match="cannot be sent to the nodes") as caught:
            pickle_function(lambda ctx: stream, None)
        assert "not hold on to a SparkSession, an open file, a lock" in str(caught.value)


def test_arguments_that_cannot_travel_are_told_from_the_function() -> None:
    with pytest.raises(FunctionError, match="The args 'dict' cannot be sent to the nodes"):
        pickle_function(lambda ctx: None, {"lock": threading.Lock()})
    with pytest.raises(FunctionError, match="The args 'BufferedWriter'"):
        pickle_function(lambda ctx: None, io.BufferedWriter(io.BytesIO()))


@pytest.mark.parametrize("master", ["spark://h:7077", "yarn", "local-cluster[2,1,1024]", ""])
def test_dynamic_allocation_is_refused_with_what_to_set(master: str) -> None:
    spark = Session(spark_dynamicAllocation_enabled="TRUE", spark_master=master)
    for check in (check_dynamic_allocation, plan_run):
        with pytest.raises(ConfigError) as caught:
            check(spark)
        assert "spark.dynamicAllocation.enabled=false" in str(caught.value)
        assert "spark.executor.instances" in str(caught.value)


def test_dynamic_allocation_is_taken_where_it_is_off_or_without_effect() -> None:
    for master, enabled in (("yarn", "false"), ("local", "true"), ("local[4]", "true")):
        spark: Any = Session(spark_dynamicAllocation_enabled=enabled, spark_master=master)
        check_dynamic_allocation(spark)
    check_dynamic_allocation(Session())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("master", "task_cpus", "slots"),
    [
        ("local", 1, 1),
        ("local[4]", 1, 4),
        ("local[5]", 2, 2),
        ("local[4, 3]", 1, 4),
        ("local[*]", 1, None),
        ("local-cluster[2,1,1024]", 1, 2),
        ("local-cluster[2, 5, 1024]", 2, 4),
        ("local-cluster[3,1,1024]", 2, 0),
        ("spark://host:7077", 1, None),
    ],
)
def test_slots_a_master_promises(master: str, task_cpus: int, slots: int | None) -> None:
    assert slots_from_master(master, task_cpus) == slots


def test_too_few_slots_are_refused_with_both_numbers() -> None:
    spark: Any = Session(spark_master="local[2]")
    check_slots(spark, 2, 0.0)
    with pytest.raises(ResourceError) as caught:
        check_slots(spark, 3, 0.0)
    assert (caught.value.needed, caught.value.slots) == (3, 2)
    assert "needs 3 task slots" in str(caught.value)
    assert "num_executors=3" in str(caught.value)
    check_slots(Session(spark_master="yarn"), 99, 0.0)  # type: ignore[arg-type]


def test_a_plan_has_what_was_asked(tmp_path: Path) -> None:
    spark = Session(spark_master="local[3]", spark_sparktrain_keptLogLines="7")
    plan = plan_run(spark, num_workers=2, evaluator=True, run_dir=tmp_path, env={"A": "secret-1"})
    assert [node.name for node in plan.nodes] == ["chief:0", "worker:0", "evaluator:0"]
    assert plan.settings.kept_log_lines == 7
    assert "secret-1" not in repr(plan)
    spec = plan.make_spec(attempt=2)
    assert (spec.run_dir, spec.attempt, spec.num_workers) == (str(tmp_path), 2, 2)
    assert (spec.kept_log_lines, spec.env) == (7, {"A": "secret-1"})
    assert all(os.path.isabs(entry) for entry in spec.python_path)  # noqa: PTH117


@pytest.mark.parametrize(
    "changes",
    [
        {"num_workers": 0},
        {"num_workers": 4},
        {"num_workers": 3, "evaluator": True},
        {"env": {"A": 1}},
        {"run_dir": "s3://b"},
        {"run_dir": ""},
        {"settings": {"runs_dir": "dbfs:/runs"}},
        {"settings": {"nosuch": 1}},
        {"args": threading.Lock()},
    ],
    ids=lambda wish: str(wish).partition(" object at")[0],
)
def test_a_plan_that_cannot_run_is_a_config_error(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        plan_run(Session(spark_master="local[3]"), **changes)


def test_run_ids_begin_with_the_time() -> None:
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", make_run_id())
