"""What a node's process is given before TensorFlow is loaded: GPUs, Hadoop's classes, TF_CONFIG."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorflowonspark import gpu_info

#: Set once CLASSPATH is complete, and inherited by whatever the node starts.
_IS_UPDATED = "TFOS_CLASSPATH_UPDATED"


def expand_classpath() -> None:
    """Adds the jars of Hadoop to CLASSPATH, as its native library wants them one by one."""
    home = os.environ.get("HADOOP_PREFIX")
    if not home or _IS_UPDATED in os.environ:
        return
    command = [str(Path(home) / "bin" / "hadoop"), "classpath", "--glob"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise Exception(
            f"HADOOP_PREFIX is {home!r}, and `{' '.join(command)}` failed: {error}. Expected the"
            " folder of a Hadoop installation; unset it if there is none."
        ) from error
    parts = [os.environ.get("CLASSPATH", ""), done.stdout.strip()]
    os.environ["CLASSPATH"] = os.pathsep.join(part for part in parts if part)
    os.environ[_IS_UPDATED] = "1"


def find_num_gpus(tf_args: Any) -> int | None:
    """How many GPUs the program's arguments ask for: a dict, a namespace or words of argv."""
    found: Any = None
    if isinstance(tf_args, Mapping):
        found = tf_args.get("num_gpus")
    elif isinstance(tf_args, (list, tuple)):
        words = [str(word) for word in tf_args]
        for position, word in enumerate(words):
            name, has_value, value = word.partition("=")
            if name == "--num_gpus":
                found = value if has_value else next(iter(words[position + 1 :]), None)
    else:
        found = getattr(tf_args, "num_gpus", None)
    return None if found is None else int(found)


def find_place(role: str, index: int, cluster_spec: Mapping[str, Sequence[str]]) -> int:
    """The number of a node among those of its host that may have GPUs: ps never do."""
    nodes = [
        (name, number, address.rpartition(":")[0])
        for name in sorted(cluster_spec)
        if name != "ps"
        for number, address in enumerate(cluster_spec[name])
    ]
    hosts = {(name, number): host for name, number, host in nodes}
    mine = hosts.get((role, index))
    here = [(name, number) for name, number, host in nodes if host == mine]
    return here.index((role, index)) if (role, index) in here else -1


def choose_gpus(
    tf_args: Any, role: str, index: int, cluster_spec: Mapping[str, Sequence[str]]
) -> None:
    """Sets CUDA_VISIBLE_DEVICES where nobody has: Spark's resources, Kubernetes, the user."""
    if "CUDA_VISIBLE_DEVICES" in os.environ or "SPARK_EXECUTOR_POD_IP" in os.environ:
        return
    if role == "ps":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        return
    wished = find_num_gpus(tf_args)
    if not gpu_info.is_gpu_available():
        return
    count = 1 if wished is None else wished
    place = find_place(role, index, cluster_spec)
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu_info.get_gpus(count, place))


def complete_tf_config(cluster_spec: Mapping[str, Sequence[str]]) -> None:
    """TF_CONFIG as the old library had it; none where no node is a chief or a master."""
    if not {"chief", "master"} & set(cluster_spec):
        os.environ.pop("TF_CONFIG", None)
        return
    config = json.loads(os.environ.get("TF_CONFIG") or "{}")
    os.environ["TF_CONFIG"] = json.dumps({**config, "environment": "cloud"})
