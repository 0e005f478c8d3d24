"""The parts of the drop-in for hops that need no cluster."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hops import (
    devices,
    experiment,
    hparams,
    tensorboard,
    work_folder,
)
from hops import util as hops_util
from hops.parallel import work_all
from sparktrain.errors import ConfigError

#: As hops-util-py 4.0 has them: names and defaults.
SIGNATURES = {
    "launch": "train_fn args_dict=None name='no-name' local_logdir=False description=None"
    " metric_key=None",
    "random_search": "train_fn boundary_dict direction='MAX' samples=10 name='no-name'"
    " local_logdir=False description=None optimization_key='metric'",
    "differential_evolution": "train_fn boundary_dict direction='MAX' generations=4 population=6"
    " mutation=0.5 crossover=0.7 name='no-name' local_logdir=False description=None"
    " optimization_key='metric'",
    "grid_search": "train_fn grid_dict direction='MAX' name='no-name' local_logdir=False"
    " description=None optimization_key='metric'",
    "parameter_server": "train_fn name='no-name' local_logdir=False description=None"
    " evaluator=False metric_key=None",
    "mirrored": "train_fn name='no-name' local_logdir=False description=None evaluator=False"
    " metric_key=None",
    # Not in 4.0 any more; as the last versions had them that did.
    "collective_all_reduce": "map_fun name='no-name' local_logdir=False versioned_resources=None"
    " description=None evaluator=False",
    "begin": "name='no-name' local_logdir=False versioned_resources=None description=None",
    "end": "metric=None",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name: str) -> None:
    known = inspect.signature(getattr(experiment, name)).parameters.values()
    shown = [
        one.name if one.default is one.empty else f"{one.name}={one.default!r}" for one in known
    ]
    assert " ".join(shown) == SIGNATURES[name]


# Arguments and names of folders.


def test_arguments() -> None:
    def train(a: int, b: int = 2, *, c: int) -> None: ...

    assert hparams.choose_arguments(train, {"a": 1, "c": 2}, "launch") == {"a", "c"}
    with pytest.raises(ConfigError, match=r"launch\(\) got values for a.*also needs c"):
        hparams.choose_arguments(train, {"a": 1}, "launch")
    with pytest.warns(UserWarning, match=r"values for d, which"):
        hparams.choose_arguments(train, {"a": 1, "c": 1, "d": 1}, "launch")
    with pytest.raises(ConfigError, match=r"Expected a function"):
        hparams.choose_arguments(3, {}, "launch")  # type: ignore[arg-type]


def test_names_of_folders() -> None:
    assert hparams.make_folder_name({"a": 1, "b": 0.5}) == "a=1&b=0.5"
    assert hparams.make_folder_name({"path": "x/y"}) == "path=x%2Fy"
    long = [hparams.make_folder_name({"a": "x" * 500 + tail}) for tail in "yz"]
    assert len(set(long)) == 2 and max(map(len, long)) <= hparams.MAX_NAME
    assert hparams.make_names([{"a": 1}, {"a": 1}]) == ["a=1", "a=1-2"]


def test_a_working_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, work = tmp_path / "home", tmp_path / "run/work/chief-0"
    home.mkdir()
    (home / "input.csv").write_text("rows")
    monkeypatch.chdir(home)
    with work_folder.entered(work):
        assert Path("input.csv").read_text() == "rows"
        Path("model.keras").write_text("model")
    assert Path.cwd() == home
    assert [path.name for path in home.iterdir()] == ["input.csv"]
    assert [path.name for path in work.iterdir()] == ["model.keras"]
    with work_folder.entered(tmp_path / "other/work/chief-0"):
        pass
    assert not (tmp_path / "other/work").exists()


UNENDED = """
from pathlib import Path
from hops import by_hand, records
by_hand.find_session = lambda: None
by_hand.find_run_dir = lambda *names: "events"
records.find_app_id = lambda spark: "app"
by_hand.begin(name="never ended", local_logdir=True)
Path("events").mkdir()
Path("events/one").touch()
"""


def test_an_experiment_that_is_never_ended_is_killed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNENDED], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert not done.stderr
    state = json.loads((tmp_path / "Experiments/app_1/.experiment.json").read_text())
    assert (state["state"], state["name"]) == ("KILLED", "never ended")
    assert "before experiment.end()" in state["error"]
    assert (tmp_path / "Experiments/app_1/one").exists()


def test_logdir_needs_an_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(tensorboard.VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=r"where no experiment runs"):
        tensorboard.logdir()


@pytest.mark.parametrize("name", ["interactive_debugger", "non_interactive_debugger"])
def test_a_debugger_that_is_no_more(name: str) -> None:
    with pytest.raises(NotImplementedError, match=rf"{name}\(\).*enable_dump_debug_info"):
        getattr(tensorboard, name)()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"EXECUTOR_GPUS": "2", "CUDA_VISIBLE_DEVICES": ""}, 2),
        ({"CUDA_VISIBLE_DEVICES": "0,3"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "MIG-1f,GPU-2e"}, 2),
        ({"CUDA_VISIBLE_DEVICES": ""}, 0),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, 0),
        ({"PATH": "/nowhere"}, 0),
    ],
)
def test_gpus(variables: dict[str, str], expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EXECUTOR_GPUS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert devices.get_num_gpus() == expected


class Conf:
    """A session's configuration, in the shape of a session."""

    def __init__(self, **values: str) -> None:
        self.conf = {name.replace("_", "."): value for name, value in values.items()}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"spark_executor_instances": "3"}, 3),
        (
            {
                "spark_dynamicAllocation_enabled": "true",
                "spark_dynamicAllocation_maxExecutors": "5",
            },
            5,
        ),
        (
            {
                "spark_dynamicAllocation_enabled": "false",
                "spark_dynamicAllocation_maxExecutors": "5",
                "spark_executor_instances": "2",
            },
            2,
        ),
        # No limit is no number of nodes.
        (
            {
                "spark_dynamicAllocation_enabled": "true",
                "spark_dynamicAllocation_maxExecutors": str(2**31 - 1),
                "spark_executor_instances": "2",
            },
            2,
        ),
        ({"spark_master": "local-cluster[4,2,1024]"}, 4),
        ({"spark_master": "local[3]"}, 3),
    ],
)
def test_numbers_of_executors(values: dict[str, str], expected: int) -> None:
    assert hops_util.num_executors(Conf(**values)) == expected


def test_numbers_of_parameter_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUM_TF_PS", raising=False)
    assert hops_util.num_param_servers(Conf()) == 0
    assert hops_util.num_param_servers(Conf(spark_tensorflow_num_ps="2")) == 2
    monkeypatch.setenv("NUM_TF_PS", "1")
    assert hops_util.num_param_servers(Conf(spark_tensorflow_num_ps="2")) == 1
    monkeypatch.setenv("NUM_TF_PS", "many")
    with pytest.raises(ConfigError, match=r"NUM_TF_PS is 'many'"):
        hops_util.num_param_servers(Conf())


# Several at a time.


def test_work_is_done_in_parallel_up_to_a_limit() -> None:
    lock, now, most = threading.Lock(), 0, 0

    def work(item: int) -> int:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.05)
        with lock:
            now -= 1
        return item * 2

    assert work_all(work, range(7), lambda: 3) == [0, 2, 4, 6, 8, 10, 12]
    assert most == 3


def test_an_error_ends_what_is_on_its_way() -> None:
    begun, ended = [], []

    def work(item: int) -> None:
        begun.append(item)
        if item == 1:
            time.sleep(0.2)
            raise OSError("no more")
        try:
            for _ in range(600):
                time.sleep(0.05)
        except KeyboardInterrupt:
            ended.append(item)
            raise

    started = time.monotonic()
    with pytest.raises(OSError, match="no more"):
        work_all(work, range(9), lambda: 2)
    assert time.monotonic() - started < 10
    assert sorted(begun) == [0, 1] and ended == [0]
