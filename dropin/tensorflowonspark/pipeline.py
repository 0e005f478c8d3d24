"""Estimator and Model of Spark ML for programs of this package."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.ml import Estimator, Model
from pyspark.ml.param import Params

from tensorflowonspark import TFCluster
from tensorflowonspark.frames import feed_frame
from tensorflowonspark.namespace import Namespace
from tensorflowonspark.params import (
    HasBatchSize,
    HasClusterSize,
    HasEpochs,
    HasExportDir,
    HasGraceSecs,
    HasInputMapping,
    HasInputMode,
    HasMasterNode,
    HasModelDir,
    HasNumPS,
    HasOutputMapping,
    HasProtocol,
    HasReaders,
    HasSignatureDefKey,
    HasSteps,
    HasTagSet,
    HasTensorboard,
    HasTFRecordDir,
    TFTypeConverters,
)
from tensorflowonspark.persistence import SavedWithPickles
from tensorflowonspark.saved_model import ModelTask
from tensorflowonspark.versions import find_tensorflow

__all__ = ["Namespace", "TFEstimator", "TFModel", "TFParams", "TFTypeConverters"]

TF_VERSION = find_tensorflow()


class TFParams(Params):
    """Params beside arguments of the program."""

    args: Any = None

    def merge_args_params(self) -> Namespace:
        """The arguments, with every Param in place of the argument of its name."""
        merged: Namespace = copy.copy(self.args)
        merged.__dict__ = dict(self.args.__dict__)
        for param in self.params:
            if self.isDefined(param):
                merged.__dict__[param.name] = self.getOrDefault(param)
        return merged


class TFEstimator(
    Estimator,  # type: ignore[type-arg]
    SavedWithPickles,
    TFParams,
    HasInputMapping,
    HasClusterSize,
    HasNumPS,
    HasInputMode,
    HasMasterNode,
    HasProtocol,
    HasGraceSecs,
    HasTensorboard,
    HasModelDir,
    HasExportDir,
    HasTFRecordDir,
    HasBatchSize,
    HasEpochs,
    HasReaders,
    HasSteps,
):
    """Trains a program on a DataFrame.

    Args:
        train_fn: The program's function: train_fn(args, ctx).
        tf_args: Its arguments.
        export_fn: Kept; train_fn exports the model itself.
    """

    train_fn: Any = None
    export_fn: Any = None
    _pickled = ("train_fn", "export_fn")

    def __init__(self, train_fn: Any, tf_args: Any, export_fn: Any = None) -> None:
        super().__init__()
        self.train_fn = train_fn
        self.export_fn = export_fn
        self.args = Namespace(tf_args)
        self._setDefault(
            input_mapping={},
            cluster_size=1,
            num_ps=0,
            driver_ps_nodes=False,
            input_mode=TFCluster.InputMode.SPARK,
            master_node="chief",
            protocol="grpc",
            tensorboard=False,
            model_dir=None,
            export_dir=None,
            tfrecord_dir=None,
            batch_size=100,
            epochs=1,
            readers=1,
            steps=1000,
            grace_secs=30,
        )

    def _fit(self, dataset: Any) -> TFModel:
        tf_args = self.args.argv if self.args.argv else self.merge_args_params()
        cluster = TFCluster.run(
            dataset.sparkSession.sparkContext,
            self.train_fn,
            tf_args,
            self.getClusterSize(),
            self.getNumPS(),
            self.getTensorboard(),
            TFCluster.InputMode.SPARK,
            master_node=self.getMasterNode(),
            driver_ps_nodes=self.getDriverPSNodes(),
        )
        try:
            feed_frame(cluster, dataset.select(sorted(self.getInputMapping())), self.getEpochs())
        except BaseException as error:
            # Functions may wait for rows that will not come: nobody waits for them.
            cluster.end(error)
            raise
        cluster.shutdown(grace_secs=self.getGraceSecs())
        model: TFModel = self._copyValues(TFModel(self.args))
        return model


class TFModel(
    Model,
    SavedWithPickles,
    TFParams,
    HasInputMapping,
    HasOutputMapping,
    HasBatchSize,
    HasModelDir,
    HasExportDir,
    HasSignatureDefKey,
    HasTagSet,
):
    """Applies an exported model to a DataFrame.

    Args:
        tf_args: The arguments of the program.
    """

    def __init__(self, tf_args: Any) -> None:
        super().__init__()
        self.args = Namespace(tf_args)
        self._setDefault(
            input_mapping={},
            output_mapping={},
            batch_size=100,
            model_dir=None,
            export_dir=None,
            signature_def_key=None,
            tag_set=None,
        )

    def _transform(self, dataset: Any) -> Any:
        from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

        inputs, outputs = self.getInputMapping(), self.getOutputMapping()
        if not self.getExportDir() or not inputs or not outputs:
            raise ValueError(
                "TFModel needs setExportDir(), setInputMapping() and setOutputMapping()"
            )
        frame = dataset.select(sorted(inputs))
        tags = self.getTagSet()
        task = ModelTask(
            export_dir=self.getExportDir().removeprefix("file://"),
            signature=self.getSignatureDefKey() or "serving_default",
            tags=tuple(tags.split(",")) if tags else (),
            inputs=dict(inputs),
            outputs=dict(sorted(outputs.items())),
            batch_size=self.getBatchSize(),
            answers=None,
        )
        # One row tells the types of the outputs; the rest is computed when it is asked for.
        rows = frame.limit(1).mapInArrow(task, "schema binary").collect()
        if not rows:
            raise ValueError("TFModel.transform() got a DataFrame without rows")
        schema = from_arrow_schema(pa.ipc.read_schema(pa.py_buffer(bytes(rows[0].schema))))
        ready = ModelTask(**{**task.__dict__, "answers": to_arrow_schema(schema)})
        return frame.mapInArrow(ready, schema)


def yield_batch(iterable: Any, batch_size: int, num_tensors: int = 1) -> Any:
    """Rows in batches: for each tensor a list of its values."""
    tensors: list[list[Any]] = [[] for _ in range(num_tensors)]
    for row in iterable:
        if row is None:
            break
        for position in range(num_tensors):
            tensors[position].append(row[position])
        if len(tensors[0]) >= batch_size:
            yield tensors
            tensors = [[] for _ in range(num_tensors)]
    if tensors[0]:
        yield tensors


def single_node_env(args: Any) -> None:
    """Makes a node that works alone see its arguments, and the GPUs that they ask for."""
    from tensorflowonspark import node_env, util

    argv = args if isinstance(args, list) else getattr(args, "argv", None)
    if argv:
        sys.argv = argv
    wished = node_env.find_num_gpus(argv or args)
    util.single_node_env(1 if wished is None else wished)


def get_meta_graph_def(saved_model_dir: str, tag_set: str) -> Any:
    """The graph of a SavedModel that has exactly these tags."""
    from tensorflow.core.protobuf import saved_model_pb2

    data = Path(saved_model_dir.removeprefix("file://"), "saved_model.pb").read_bytes()
    graphs = saved_model_pb2.SavedModel.FromString(data).meta_graphs
    tags = set(tag_set.split(","))
    for graph in graphs:
        if set(graph.meta_info_def.tags) == tags:
            return graph
    known = "; ".join(",".join(graph.meta_info_def.tags) for graph in graphs) or "none"
    raise RuntimeError(f"{saved_model_dir} has no graph with the tags {tag_set!r}; it has: {known}")
