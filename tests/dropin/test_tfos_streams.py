"""Streams into clusters of the old API: Structured Streaming and DStreams, and how they end."""

from __future__ import annotations

import json
import socket
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
import tfos_cases
from tensorflowonspark import TFCluster, reservation

SPARK = TFCluster.InputMode.SPARK


@pytest.fixture
def ssc(spark: Any) -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # DStreams are deprecated
        from pyspark.streaming import StreamingContext

        context = StreamingContext(spark.sparkContext, 1)
    yield context
    context.stop(stopSparkContext=False, stopGraceFully=False)


def test_a_streaming_dataframe_is_waited_for(spark: Any, tmp_path: Path) -> None:
    source = str(tmp_path / "source")
    spark.range(0, 200, 1, 3).write.parquet(source)
    stream = spark.readStream.schema("id long").parquet(source)
    args = {"folder": str(tmp_path)}
    cluster = TFCluster.run(spark.sparkContext, tfos_cases.note, args, 1, 0, input_mode=SPARK)
    cluster.train(stream, trigger={"availableNow": True})
    cluster.shutdown(timeout=120)
    known = json.loads((tmp_path / "worker-0.json").read_text())
    assert sorted(known["rows"]) == [[number] for number in range(200)]


def test_an_endless_stream_is_stopped_from_outside(spark: Any, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("value")
    args = {"folder": str(tmp_path)}
    cluster = TFCluster.run(spark.sparkContext, tfos_cases.note, args, 1, 0, input_mode=SPARK)
    feed = cluster.train(stream)
    client = reservation.Client(cluster.cluster_meta["server_addr"])
    client.request_stop()
    client.close()
    cluster.shutdown(timeout=120)
    assert not feed.query.isActive and (tmp_path / "worker-0.json").exists()


def test_a_dstream_whose_worker_fails(spark: Any, ssc: Any) -> None:
    sc = spark.sparkContext
    stream = ssc.queueStream([sc.parallelize(range(50), 2) for _ in range(100)])
    cluster = TFCluster.run(sc, tfos_cases.fail, {}, 1, 0, input_mode=SPARK)
    cluster.train(stream)
    ssc.start()
    with pytest.raises(st.NodeFailedError, match="this worker has had enough"):
        cluster.shutdown(ssc)
    assert ssc._jssc.getState().toString() == "STOPPED"


def test_the_wait_for_a_dstream_is_limited(spark: Any, ssc: Any) -> None:
    sc = spark.sparkContext
    cluster = TFCluster.run(sc, tfos_cases.linger, {}, 1, 0, input_mode=SPARK)
    cluster.train(ssc.queueStream([sc.parallelize([1, 2, 3], 1)]))
    ssc.start()
    with pytest.raises(st.RunTimeoutError):
        cluster.shutdown(ssc, timeout=3)
    assert ssc.awaitTerminationOrTimeout(1)


def test_a_port_that_is_taken_leaves_nothing(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        monkeypatch.setenv("TFOS_SERVER_PORT", str(taken.getsockname()[1]))
        with pytest.raises(Exception, match="no port of TFOS_SERVER_PORT"):
            TFCluster.run(spark.sparkContext, tfos_cases.note, {}, 1, 0)
