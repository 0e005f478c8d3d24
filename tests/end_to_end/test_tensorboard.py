"""TensorBoard of runs, clusters and estimators: its own HTTP API tells what it shows."""

from __future__ import annotations

import json
import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import sparktrain as st
from board_cases import be_lost_once, fail, train
from sparktrain.cli.board import end_board
from sparktrain.events import BOARD_FILE

#: Of a store of events.
SECRET = "hush-7f3a"


def ask(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.loads(answer.read())


def find_boards() -> list[int]:
    """Processes of TensorBoards that this test session has started, and of their guards."""
    found = []
    for process in psutil.process_iter():
        try:
            is_ours = process.environ().get("SPARKTRAIN_TEST_SESSION") == os.environ.get(
                "SPARKTRAIN_TEST_SESSION"
            )
            if is_ours and any("board_main.py" in part for part in process.cmdline()):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


@pytest.fixture(autouse=True)
def no_boards_left() -> Any:
    yield
    deadline = time.monotonic() + 10
    while find_boards() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not find_boards()


def find_keys() -> set[str | None]:
    """What boards have as the key of a store; it must not be on a command line."""
    found = [psutil.Process(pid) for pid in find_boards()]
    assert not any(SECRET in part for process in found for part in process.cmdline())
    return {process.environ().get("STORE_SECRET") for process in found}


def wait_for(look: Callable[[], Any], timeout_s: float = 60) -> Any:
    deadline, why = time.monotonic() + timeout_s, "it was never there"
    while time.monotonic() < deadline:
        try:
            if found := look():
                return found
            why = "it answered, without what was looked for"
        except (OSError, ValueError, KeyError) as error:
            why = repr(error)
        time.sleep(0.2)
    print(f"nothing found in {timeout_s:g} s: {why}")
    return None


def make_data(spark: Any) -> Any:
    x = "array(cast(id % 7 as float), cast(id % 5 as float)) as x"
    return spark.range(400).selectExpr(x, "cast(id % 7 + id % 5 as float) as y")


def look_while_running(run_dir: Path, wanted: set[str], found: dict[str, Any]) -> None:
    """What a run's board answers, until it has the wanted runs of events."""

    def look() -> bool:
        if "over" in found:
            return True
        url = json.loads((run_dir / BOARD_FILE).read_text())["url"]
        tags = ask(f"{url}data/plugin/scalars/tags")
        found.update(url=url, tags=tags, keys=find_keys())
        if not wanted <= set(tags):
            return False
        for name, tag in (("train", "epoch_loss"), ("feed/worker-0", "feed/rows")):
            query = f"run={name.replace('/', '%2F')}&tag={tag.replace('/', '%2F')}"
            found[tag] = ask(f"{url}data/plugin/scalars/scalars?{query}")
        return len(found["epoch_loss"]) == len(found["feed/rows"]) == 2

    wait_for(look, 90)
    (run_dir / "seen").touch()


def check_choice(folder: Path) -> None:
    """What is written beside scalars is there."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    assert "keras" in events.PluginTagToContent("graph_keras_model")
    assert any("kernel" in tag for tag in events.PluginTagToContent("histograms"))
    assert list(folder.rglob("plugins/profile/*/*.xplane.pb"))


@pytest.mark.parametrize(
    ("at", "is_copied"),
    [("driver", False), pytest.param("chief", True, marks=pytest.mark.slow)],
)
def test_the_board_of_a_run_has_its_scalars_while_it_runs(
    spark: Any, tmp_path: Path, at: str, is_copied: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    run_dir = tmp_path / "run"
    found: dict[str, Any] = {}
    wanted = {"train", "feed/chief-0", "feed/worker-0"}
    looking = threading.Thread(target=look_while_running, args=(run_dir, wanted, found))
    looking.start()
    try:
        result = st.run(
            train,
            num_workers=2,
            data=make_data(spark),
            args=str(run_dir / "seen"),
            spark=spark,
            run_dir=run_dir,
            tensorboard=True,
            tensorboard_at=at,
            events_dir=f"file://{tmp_path}/store" if is_copied else "",
            events="graph,histograms,profile" if is_copied else "",
            env={"STORE_SECRET": SECRET},
            progress="plain",
        )
    finally:
        found["over"] = True
        looking.join()
    assert wanted <= set(found["tags"]), found
    losses = [value for _, _, value in found["epoch_loss"]]
    assert losses == pytest.approx([row["loss"] for row in result.metrics], rel=1e-5)
    rows = [value for _, _, value in found["feed/rows"]]
    assert rows == [200.0, 200.0]
    assert set(found["tags"]["feed/chief-0"]) == {
        f"feed/{name}" for name in ("rows", "rows_per_s", "mb_per_s", "wait_share", "queue")
    }
    shown = capfd.readouterr().err
    assert found["url"].startswith("http://127.0.0.1:") and found["url"] in shown
    assert (" on 127.0.0.1: http" in shown) == (at == "chief")
    # Beside the chief it has what the nodes have, and the driver has nothing of it.
    assert found["keys"] == {SECRET if at == "chief" else None} and SECRET not in shown
    files = [path for path in run_dir.rglob("*") if path.is_file()]
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    # It ended with the run.
    assert result.tensorboard_url is None and not (run_dir / BOARD_FILE).exists()
    with pytest.raises(OSError):  # refused, or cut off
        ask(f"{found['url']}data/environment")
    folder = result.tensorboard_command.split()[-1]
    if is_copied:
        assert result.tensorboard_command.startswith(f"sparktrain tensorboard file://{tmp_path}")
        folder = folder.removeprefix("file://")
        check_choice(run_dir / "tensorboard" / "train")
    else:
        assert result.tensorboard_command == f"tensorboard --logdir {run_dir}/tensorboard"
    assert len(list(Path(folder).rglob("events*"))) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("at", ["driver", "chief"])
def test_a_run_that_fails_leaves_no_board(spark: Any, tmp_path: Path, at: str) -> None:
    with pytest.raises(st.TrainingError, match="on purpose"):
        st.run(
            fail,
            num_workers=1,
            spark=spark,
            run_dir=tmp_path / "run",
            tensorboard=True,
            tensorboard_at=at,
            progress=False,
        )


@pytest.mark.slow
def test_behind_a_restart_it_is_reached_at_the_address_that_was_printed_last(
    spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run_dir, shown = tmp_path / "run", list[str]()

    def find_printed() -> list[str]:
        shown.append(capfd.readouterr().err)
        return re.findall(r"TensorBoard on 127\.0\.0\.1: (\S+)", " ".join("".join(shown).split()))

    def is_there(count: int) -> bool:
        told, printed = json.loads((run_dir / BOARD_FILE).read_text()), find_printed()
        is_last = len(printed) == count and printed[-1] == told["url"]
        return is_last and bool(ask(f"{printed[-1]}data/environment"))

    def look() -> None:
        for count, name in enumerate(("first", "second"), 1):
            found.append(wait_for(lambda count=count: is_there(count), 90))
            (tmp_path / name).touch()

    found: list[Any] = []
    looking = threading.Thread(target=look)
    looking.start()
    try:
        result = st.run(
            be_lost_once,
            num_workers=1,
            args=str(tmp_path),
            spark=spark,
            run_dir=run_dir,
            tensorboard=True,
            tensorboard_at="chief",
            max_restarts=1,
            progress="plain",
        )
    finally:
        looking.join()
    assert result.num_restarts == 1 and found == [True, True]
    assert len(find_printed()) == 2


@pytest.mark.slow
@pytest.mark.parametrize("at", ["driver", "chief"])
def test_a_board_can_stay_and_be_ended(spark: Any, tmp_path: Path, at: str) -> None:
    result = st.run(
        train,
        num_workers=1,
        data=make_data(spark),
        spark=spark,
        run_dir=tmp_path / "run",
        tensorboard=True,
        tensorboard_at=at,
        tensorboard_keep=True,
        progress=False,
    )
    try:
        assert result.tensorboard_url is not None
        url = result.tensorboard_url
        assert wait_for(lambda: "train" in ask(f"{url}data/plugin/scalars/tags"))
    finally:
        end_board(result.run_dir)


@pytest.mark.slow
@pytest.mark.parametrize("at", ["driver", "chief"])
def test_the_board_of_a_cluster(spark: Any, tmp_path: Path, at: str) -> None:
    settings = {"tensorboard_at": at, "progress": False, "run_dir": tmp_path / "run"}
    # A board beside the chief goes with its node, which is over when its function is.
    settings |= {"env": {"STORE_SECRET": SECRET}, "args": str(tmp_path / "seen")}
    with st.cluster(train, num_workers=1, spark=spark, tensorboard=True, **settings) as cluster:
        url = cluster.tensorboard_url
        assert url is not None
        assert ask(f"{url}data/environment")
        assert find_keys() == {SECRET if at == "chief" else None}
        cluster.feed(make_data(spark))
        cluster.end_feed()
        assert wait_for(lambda: "train" in ask(f"{url}data/plugin/scalars/tags"))
        (tmp_path / "seen").touch()
        assert cluster.tensorboard_command.endswith(str(tmp_path / "run/tensorboard"))
    with pytest.raises(OSError):  # refused, or cut off
        ask(f"{url}data/environment")


@pytest.mark.slow
def test_the_board_of_an_estimator(
    spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def build() -> Any:
        import keras

        return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])

    estimator = st.KerasRegressor(
        model=build,
        featureCols=["x"],
        labelCol="y",
        loss="mse",
        epochs=2,
        tensorboard=True,
        runDir=str(tmp_path / "run"),
        progress="plain",
        settings={"tensorboard_keep": True, "events_dir": f"file://{tmp_path}/store"},
    )
    model = estimator.fit(make_data(spark))
    url = json.loads((tmp_path / "run" / BOARD_FILE).read_text())["url"]
    try:
        assert url in capfd.readouterr().err
        assert wait_for(lambda: "train" in ask(f"{url}data/plugin/scalars/tags"))
        shown = f"sparktrain tensorboard file://{tmp_path}/store/"
        assert model.tensorboard_command.startswith(shown)
        model.save(str(tmp_path / "model"))
        loaded = st.KerasModel.load(str(tmp_path / "model"))
        assert loaded.tensorboard_command == model.tensorboard_command
    finally:
        end_board(str(tmp_path / "run"))


def test_what_cannot_be_is_refused_before_any_job(spark: Any, tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"tensorboard": 3}, "got tensorboard=3"),
        ({"tensorboard": True, "tensorboard_host": "192.0.2.1"}, "cannot listen on 192"),
        ({"tensorboard_at": "worker"}, "one of driver, chief"),
        ({"events": "weights"}, "Expected some of graph, histograms, profile"),
        ({"events_dir": "nothing://x"}, "The store of"),
    ]
    for settings, words in cases:
        with pytest.raises(st.ConfigError, match=words):
            st.run(fail, num_workers=1, spark=spark, run_dir=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()
