"""Experiments whose nodes have roles, on four executors: a program, for one Java per process.

    python hops_roles.py FOLDER

Writes what happened to FOLDER/answer.json.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import sparktrain as st
from hops import experiment


def look_around() -> dict[str, Any]:
    """The roles, as the program sees them; each node writes events, and prints who it is."""
    import json
    import os
    import time
    from pathlib import Path

    from hops import tensorboard

    config = json.loads(os.environ["TF_CONFIG"])
    task = config["task"]
    me = f"{task['type']}-{task['index']}"
    print("I am", me)
    logdir = Path(tensorboard.logdir())
    (logdir / f"events-{me}").write_text(me)
    if me != "chief-0":
        time.sleep(3)  # the others still write when the chief's events are copied
        (logdir / f"late-{me}").write_text(me)
    roles = {role: len(hosts) for role, hosts in config["cluster"].items()}
    return {"me": me, "roles": roles, "logdir": str(logdir)}


def train() -> dict[str, Any]:
    """Keras 3 on the chief and the workers; the evaluator looks on."""
    import json
    import os

    import keras
    import numpy as np
    import tensorflow as tf

    if json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "evaluator":
        print("I evaluate")
        return {}
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    x = np.arange(64, dtype="float32").reshape(32, 2) / 64
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
    losses = model.fit(x, x.sum(axis=1), batch_size=8, epochs=2, verbose=0).history["loss"]
    return {"replicas": strategy.num_replicas_in_sync, "falls": losses[-1] < losses[0]}


def list_files(folder: str) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in Path(folder).rglob("*") if p.is_file())


def main(folder: Path) -> None:
    os.environ["HOPS_PROJECT_PATH"] = str(folder)
    spark = st.session(num_executors=4, executor_memory_mb=512)
    answer: dict[str, Any] = {}

    logdir, outputs = experiment.mirrored(look_around, local_logdir=True, evaluator=True)
    answer["mirrored"] = {"outputs": outputs, "files": list_files(logdir)}
    _, answer["trained"] = experiment.mirrored(train, evaluator=True)
    logdir = experiment.collective_all_reduce(look_around, "c", False, None, "d", True)
    found = json.loads((Path(logdir) / ".outputs.json").read_text())
    state = json.loads((Path(logdir) / ".experiment.json").read_text())
    answer["collective"] = {"outputs": found, "said": state["description"]}
    os.environ["NUM_TF_PS"] = "1"
    logdir, outputs = experiment.parameter_server(look_around, evaluator=True)
    answer["servers"] = {"outputs": outputs, "files": list_files(logdir)}
    spark.stop()
    (folder / "answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
