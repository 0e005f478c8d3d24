"""TensorFlow and Keras, trained and served on your Spark cluster.

    import sparktrain as st

    result = st.run(train, num_workers=2)

Importing this package loads neither pyspark nor TensorFlow: public names are looked up
when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sparktrain.version import __version__

if TYPE_CHECKING:
    from sparktrain import tfrecord as tfrecord
    from sparktrain.clusters import Cluster, cluster
    from sparktrain.data.files import files
    from sparktrain.data.tables import table
    from sparktrain.embedded import session
    from sparktrain.errors import (
        ConfigError,
        DataError,
        DeviceError,
        DevicesTakenError,
        FunctionError,
        LaunchError,
        ModelError,
        NodeFailedError,
        NodeLostError,
        RecordError,
        ResourceError,
        ResultError,
        RunDirError,
        RunTimeoutError,
        SchemaError,
        ScoringError,
        SessionError,
        SparktrainError,
        TrainingError,
        VersionMismatchError,
    )
    from sparktrain.inference import argmax, predict, predict_udf, top_k
    from sparktrain.ml.estimator import KerasClassifier, KerasEstimator, KerasRegressor
    from sparktrain.ml.model import KerasModel
    from sparktrain.training import Result, run

_HOMES = {
    "run": "sparktrain.training",
    "cluster": "sparktrain.clusters",
    "Cluster": "sparktrain.clusters",
    "Result": "sparktrain.training",
    "files": "sparktrain.data.files",
    "session": "sparktrain.embedded",
    "table": "sparktrain.data.tables",
    "predict": "sparktrain.inference",
    "predict_udf": "sparktrain.inference",
    "argmax": "sparktrain.inference",
    "top_k": "sparktrain.inference",
    "KerasEstimator": "sparktrain.ml.estimator",
    "KerasClassifier": "sparktrain.ml.estimator",
    "KerasRegressor": "sparktrain.ml.estimator",
    "KerasModel": "sparktrain.ml.model",
    "ConfigError": "sparktrain.errors",
    "DataError": "sparktrain.errors",
    "DeviceError": "sparktrain.errors",
    "DevicesTakenError": "sparktrain.errors",
    "FunctionError": "sparktrain.errors",
    "LaunchError": "sparktrain.errors",
    "ModelError": "sparktrain.errors",
    "NodeFailedError": "sparktrain.errors",
    "NodeLostError": "sparktrain.errors",
    "RecordError": "sparktrain.errors",
    "ResourceError": "sparktrain.errors",
    "ResultError": "sparktrain.errors",
    "RunDirError": "sparktrain.errors",
    "RunTimeoutError": "sparktrain.errors",
    "SchemaError": "sparktrain.errors",
    "ScoringError": "sparktrain.errors",
    "SessionError": "sparktrain.errors",
    "SparktrainError": "sparktrain.errors",
    "TrainingError": "sparktrain.errors",
    "VersionMismatchError": "sparktrain.errors",
}

__all__ = [
    "run",
    "Result",
    "cluster",
    "Cluster",
    "files",
    "session",
    "table",
    "tfrecord",
    "predict",
    "predict_udf",
    "argmax",
    "top_k",
    "KerasEstimator",
    "KerasClassifier",
    "KerasRegressor",
    "KerasModel",
    "SparktrainError",
    "ConfigError",
    "DeviceError",
    "FunctionError",
    "ResourceError",
    "RunDirError",
    "SchemaError",
    "ModelError",
    "SessionError",
    "LaunchError",
    "VersionMismatchError",
    "TrainingError",
    "NodeFailedError",
    "DataError",
    "DevicesTakenError",
    "ResultError",
    "NodeLostError",
    "RunTimeoutError",
    "ScoringError",
    "RecordError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name == "tfrecord":
        return importlib.import_module("sparktrain.tfrecord")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'sparktrain' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value  # the next look-up is an ordinary one
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
