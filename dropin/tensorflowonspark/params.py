"""The Params of the pipeline: one table, and a mixin class for each row of it."""

from __future__ import annotations

from typing import Any

from pyspark.ml.param import Param, Params, TypeConverters


class TFTypeConverters:
    """Conversions that Spark does not have."""

    @staticmethod
    def toDict(value: Any) -> dict[Any, Any]:
        if type(value) is dict:
            return value
        raise TypeError(f"expected a dict, got {value!r} of type {type(value).__name__}")


def _make(
    name: str, suffix: str, convert: Any, doc: str, base: type[Params] = Params
) -> type[Params]:
    """A mixin with one Param, its setter and its getter."""
    param: Param[Any] = Param(Params._dummy(), name, doc, typeConverter=convert)

    def set_value(self: Any, value: Any) -> Any:
        return self._set(**{name: value})

    def get_value(self: Any) -> Any:
        return self.getOrDefault(getattr(self, name))

    members = {name: param, f"set{suffix}": set_value, f"get{suffix}": get_value}
    return type(f"Has{suffix}", (base,), {**members, "__doc__": doc})


_INT, _TEXT, _BOOL = TypeConverters.toInt, TypeConverters.toString, TypeConverters.toBoolean
_DICT = TFTypeConverters.toDict


def _to_mode(value: Any) -> int:
    """Estimators train on what Spark feeds, and on nothing else."""
    mode = int(TypeConverters.toInt(value))
    if mode == 0:
        raise Exception("InputMode.TENSORFLOW is deprecated: fit() trains on its DataFrame")
    return mode


HasBatchSize: Any = _make("batch_size", "BatchSize", _INT, "Number of records per batch")
HasClusterSize: Any = _make("cluster_size", "ClusterSize", _INT, "Number of nodes in the cluster")
HasEpochs: Any = _make("epochs", "Epochs", _INT, "Number of epochs to train")
HasGraceSecs: Any = _make("grace_secs", "GraceSecs", _INT, "Not needed any more")
HasInputMapping: Any = _make("input_mapping", "InputMapping", _DICT, "Input columns to tensors")
HasInputMode: Any = _make("input_mode", "InputMode", _to_mode, "Where rows come from")
HasMasterNode: Any = _make("master_node", "MasterNode", _TEXT, "What the chief is called")
HasModelDir: Any = _make("model_dir", "ModelDir", _TEXT, "Where checkpoints are")
HasDriverPSNodes: Any = _make("driver_ps_nodes", "DriverPSNodes", _BOOL, "Run ps on the driver")
HasNumPS: Any = _make("num_ps", "NumPS", _INT, "Number of parameter servers", HasDriverPSNodes)
HasOutputMapping: Any = _make("output_mapping", "OutputMapping", _DICT, "Tensors to columns")
HasProtocol: Any = _make("protocol", "Protocol", _TEXT, "Network protocol of TensorFlow")
HasReaders: Any = _make("readers", "Readers", _INT, "Number of reader threads")
HasSteps: Any = _make("steps", "Steps", _INT, "Number of steps to train")
HasTensorboard: Any = _make("tensorboard", "Tensorboard", _BOOL, "Whether TensorBoard runs")
HasTFRecordDir: Any = _make("tfrecord_dir", "TFRecordDir", _TEXT, "Where TFRecord files are")
HasExportDir: Any = _make("export_dir", "ExportDir", _TEXT, "Where the model is exported to")
HasSignatureDefKey: Any = _make(
    "signature_def_key", "SignatureDefKey", _TEXT, "Which signature of the model is called"
)
HasTagSet: Any = _make("tag_set", "TagSet", _TEXT, "Which tags the model was saved with")
