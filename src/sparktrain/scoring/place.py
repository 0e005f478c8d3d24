"""Where a scoring task runs: its partition, its share of the cores, its device."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TaskPlace:
    """What Spark gave to a task.

    Attributes:
        device: TensorFlow's name of the GPU; empty without one.
    """

    partition: int
    cpus: int
    device: str = ""


def find_place() -> TaskPlace:
    """Of the task that runs this; of a whole machine where no task does."""
    try:
        from pyspark import TaskContext

        task = TaskContext.get()
    except ImportError:  # a model that is served without Spark
        task = None
    if task is None:
        return TaskPlace(0, os.cpu_count() or 1)
    gpu = task.resources().get("gpu")
    device = find_device(gpu.addresses if gpu is not None else [], os.environ)
    return TaskPlace(task.partitionId(), max(int(task.cpus()), 1), device)


def find_device(addresses: Sequence[str], environ: os._Environ[str] | dict[str, str]) -> str:
    """TensorFlow's name of the first GPU that Spark gave.

    Workers are used again by tasks with other GPUs, and TensorFlow sees for ever what it saw
    first: so all GPUs stay visible, and the model is put on the one of the task.
    """
    if not addresses:
        return ""
    visible = environ.get("CUDA_VISIBLE_DEVICES", "")
    known = [one.strip() for one in visible.split(",") if one.strip()]
    if addresses[0] in known:
        return f"/GPU:{known.index(addresses[0])}"
    # Addresses are numbers from 0, unless the discovery script says otherwise.
    return f"/GPU:{addresses[0]}" if addresses[0].isdigit() else "/GPU:0"


def prepare(place: TaskPlace) -> None:
    """Has TensorFlow use the task's share of the machine; does nothing the second time."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    # Once TensorFlow has computed something, it cannot be changed any more: that is the case
    # for the second task of a worker, whose share is the same.
    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_intra_op_parallelism_threads(place.cpus)
        tf.config.threading.set_inter_op_parallelism_threads(place.cpus)
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)
