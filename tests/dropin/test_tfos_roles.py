"""All roles of the old library at once: ps on the driver, an evaluator, and its TensorBoard."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

import tfos_cases
from tensorflowonspark import TFCluster


def ask(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.loads(answer.read())


@pytest.mark.slow
@pytest.mark.parametrize("on_driver", [True, False])
def test_every_role(spark: Any, tmp_path: Path, on_driver: bool) -> None:
    logs = tmp_path / "logs"
    (folder := tmp_path / "nodes").mkdir()
    cluster = TFCluster.run(
        spark.sparkContext,
        tfos_cases.note_roles,
        {"folder": str(folder), "log_dir": str(logs)},
        num_executors=5,
        num_ps=2,
        tensorboard=on_driver,
        input_mode=TFCluster.InputMode.TENSORFLOW,
        log_dir=str(logs),
        driver_ps_nodes=on_driver,
        master_node="master",
        eval_node=True,
    )
    names = [f"{node['job_name']}:{node['task_index']}" for node in cluster.cluster_info]
    assert names == ["ps:0", "ps:1", "master:0", "evaluator:0", "worker:0"]
    assert [node["executor_id"] for node in cluster.cluster_info] == [0, 1, 2, 3, 4]
    assert len({node["port"] for node in cluster.cluster_info}) == 5
    url = cluster.tensorboard_url()
    assert (url is not None) == on_driver
    boards = [(node["tb_port"], node["tb_pid"]) for node in cluster.cluster_info]
    assert [bool(port) for port, _ in boards] == [False] * 4 + [on_driver]
    if url is not None:
        assert f":{boards[-1][0]}/" in url
        assert "--logdir" in psutil.Process(boards[-1][1]).cmdline()
    if url is not None:
        wait_for_scalar(url)
    cluster.shutdown()
    if url is not None:
        with pytest.raises(urllib.error.URLError):
            ask(f"{url}data/environment")
    known = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    assert set(known) == {name.replace(":", "-") for name in names}
    for name, node in known.items():
        assert node["roles"] == {"ps": 2, "master": 1, "evaluator": 1, "worker": 1}
        assert node["num_workers"] == 2
        assert node["config"] == {"type": name.split("-")[0], "index": int(name[-1])}
        assert node["cuda"] == ("-1" if name.startswith("ps") else None)
        assert not psutil.pid_exists(node["pid"])
    lines = "".join(
        (Path(cluster.cluster.run_dir) / "logs" / f"{name}-0.log").read_text()
        for name in ("master", "worker")
    )
    assert "/job:ps/task:" in lines
    totals = [float(line.split()[1]) for line in lines.splitlines() if line.startswith("total")]
    assert max(totals) == 10.0  # one variable for both


def wait_for_scalar(url: str) -> None:
    """Until TensorBoard shows what a worker wrote."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        runs = ask(f"{url}data/plugin/scalars/tags")
        if any("total" in tags for tags in runs.values()):
            return
        time.sleep(0.5)
    pytest.fail(f"TensorBoard has {runs}")
