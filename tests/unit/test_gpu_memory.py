"""A part of a GPU's memory, from the wish to what TensorFlow is told in a real trainer."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from gpu_host import HERE, RUN
from sparktrain.agent.job import describe_data, make_job
from sparktrain.agent.node_devices import NodeDevices, choose_variables
from sparktrain.agent.process import TrainerProcess, find_python_path, make_environment
from sparktrain.driver.plan import Plan
from sparktrain.settings import Settings
from sparktrain.spec import DeviceWish, NodeSpec

NODE = NodeSpec("chief", 0)
#: What Python loads first: TensorFlow with a GPU for each that the node sees, and notes of what it
#: is told of them. It takes no limit for a processor that stands for one.
STORY = """
import os
import tensorflow as tf

names = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
gpus = [tf.config.PhysicalDevice(name, "GPU") for name in names]
told = []


def note(device, parts):
    told.append((device.name, [part.memory_limit for part in parts]))


find = tf.config.list_physical_devices
tf.config.list_physical_devices = lambda kind=None: gpus if kind == "GPU" else find(kind)
tf.config.set_logical_device_configuration = note
"""


def tell(ctx: Any) -> Any:
    import sitecustomize

    return sitecustomize.told, os.environ["TF_FORCE_GPU_ALLOW_GROWTH"]


tell.__module__ = "__main__"  # travels by value


@pytest.mark.parametrize(
    ("wish", "env", "expected"),
    [
        (DeviceWish(memory_fraction=0.1), {}, {"0": [100]}),
        (DeviceWish(memory_mb=300), {"CUDA_VISIBLE_DEVICES": "2,3"}, {"2": [300], "3": [300]}),
        (DeviceWish(per_worker=1), {}, {}),
    ],
)
def test_tensorflow_is_told_how_much_of_each_device(
    gpus: list[str],
    tmp_path: Path,
    make_plan: Callable[..., Plan],
    wish: DeviceWish,
    env: dict[str, str],
    expected: dict[str, list[int]],
) -> None:
    (tmp_path / "sitecustomize.py").write_text(STORY)
    settings = Settings(distribution="none")
    function = cloudpickle.dumps((tell, None))
    plan = make_plan(tmp_path, settings, nodes=(NODE,), num_workers=1, function=function, env=env)
    spec = dataclasses.replace(plan.make_spec(0), devices=wish)
    data = describe_data(spec, NODE)
    path = [str(tmp_path), *find_python_path()]
    with NodeDevices(wish, NODE, HERE, env, RUN) as devices:
        variables = choose_variables(NODE, devices, env)
        environment = make_environment(os.environ, variables, path)
        trainer = TrainerProcess(NODE, "here", environment, print, lambda values: None)
        with trainer:
            trainer.send(make_job(spec, NODE, len(data), devices), spec.function + data)
            trainer.send({"kind": "cluster", "cluster": {"chief": ["127.0.0.1:1"]}})
            assert trainer.wait() is None
    told, growth = cloudpickle.loads(trainer.value or b"")
    names = {gpu: str(index) for index, gpu in enumerate(gpus)}
    assert {names.get(name, name): limits for name, limits in told} == expected
    assert growth == "true"
