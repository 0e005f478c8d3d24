"""Fits in MLflow: one run for each fit, written by the driver, with its parameters, metrics by
epoch, and the model with its signature.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparktrain.errors import ConfigError
from sparktrain.ml.kept import Kept

if TYPE_CHECKING:
    from sparktrain.ml.model import KerasModel

#: MLflow's limit for the value of a parameter.
_MAX_CHARS = 6000
_UNLOGGED = ("mlflow", "callbacks", "env", "settings", "progress", "verbose")


class Recorder:
    """Writes fits of one estimator to MLflow.

    Args:
        wish: True for the experiment that is active, or the name of one.
        frame: What is trained on; its types are the model's signature.

    Raises:
        ConfigError: MLflow is not installed, or the experiment was deleted.
    """

    def __init__(self, wish: bool | str, frame: Any) -> None:
        try:
            import mlflow
        except ImportError as error:
            raise ConfigError(
                problem=f"mlflow={wish!r}, but MLflow is not installed: {error}.",
                advice='Install it on the driver: pip install "sparktrain[mlflow]".',
            ) from error
        self._mlflow: Any = mlflow
        self._frame = frame
        self._began = int(time.time() * 1000)
        # Here, in the user's own thread: a grid search trains in others, which have no active run.
        parent = mlflow.active_run()
        self._parent = parent.info.run_id if parent is not None else None
        self._experiment = self._find_experiment(wish, parent)

    def _find_experiment(self, wish: bool | str, parent: Any) -> str:
        if isinstance(wish, str):
            known = self._mlflow.get_experiment_by_name(wish)
            if known is not None and known.lifecycle_stage == "deleted":
                raise ConfigError(
                    problem=f"The experiment {wish!r} of MLflow is deleted.",
                    advice="Restore it (mlflow experiments restore), or name another one.",
                )
            if known is not None:
                return str(known.experiment_id)
            return str(self._mlflow.create_experiment(wish))
        if parent is not None:
            return str(parent.info.experiment_id)
        from mlflow.tracking.fluent import _get_experiment_id

        return str(_get_experiment_id())

    def record(self, estimator: Any, found: KerasModel | BaseException) -> None:
        """One fit: a model, or how it failed."""
        client = self._mlflow.MlflowClient()
        tags = {"sparktrain.estimator": type(estimator).__name__, "mlflow.runName": estimator.uid}
        if self._parent is not None:
            tags["mlflow.parentRunId"] = self._parent
        run = client.create_run(self._experiment, start_time=self._began, tags=tags)
        run_id = run.info.run_id
        status = "FAILED"
        try:
            for name, value in describe_params(estimator).items():
                client.log_param(run_id, name, value)
            if isinstance(found, BaseException):
                client.set_tag(run_id, "sparktrain.error", str(found)[:_MAX_CHARS])
                return
            self._log_metrics(client, run_id, found)
            self._log_model(run_id, found)
            status = "FINISHED"
        finally:
            client.set_terminated(run_id, status)
        found.mlflow_run_id = run_id

    def _log_metrics(self, client: Any, run_id: str, model: KerasModel) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [
            Metric(name, float(value), now, int(row["epoch"]))
            for row in model.epochs
            for name, value in row.items()
            if name != "epoch"
        ]
        for start in range(0, len(metrics), 1000):  # MLflow's limit for one call
            client.log_batch(run_id, metrics=metrics[start : start + 1000])
        for name, value in {"run_dir": model.run_dir, **model.contract.versions}.items():
            client.set_tag(run_id, f"sparktrain.{name}", value)

    def _log_model(self, run_id: str, model: KerasModel) -> None:
        from sparktrain.ml.pyfunc import write_pyfunc

        picks, options = model.plan_scoring([])
        versions = model.contract.versions
        needed = [f"{name}=={versions[name]}" for name in sorted(versions) if name != "python"]
        with tempfile.TemporaryDirectory(prefix="sparktrain-mlflow-") as folder:
            kinds = {name: self._frame.schema[name].dataType for name in model.contract.columns}
            types = {name: kind.typeName() for name, kind in kinds.items()}
            data = write_pyfunc(model, picks, options, types, Path(folder, "data"))
            # Not log_model: it needs the run to be active, which is the user's to decide.
            self._mlflow.pyfunc.save_model(
                str(Path(folder, "model")),
                loader_module="sparktrain.ml.pyfunc",
                data_path=str(data),
                signature=find_signature(self._frame, model, picks),
                pip_requirements=needed,
            )
            self._mlflow.MlflowClient().log_artifacts(run_id, str(Path(folder, "model")), "model")


def describe_params(estimator: Any) -> dict[str, str]:
    """The Params that are set or have a default, as texts."""
    found = {}
    for param in estimator.params:
        value = estimator.peek(param) if estimator.isDefined(param) else None
        if value is None or param.name in _UNLOGGED:
            continue
        if param.name == "model":
            value = value if isinstance(value, str) else _name_model(value)
        elif hasattr(value, "mapInArrow"):
            value = "a DataFrame"
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        found[param.name] = text[:_MAX_CHARS]
    return found


def _name_model(model: Any) -> Any:
    if isinstance(model, Kept):
        return model.part.name.strip("'")
    return getattr(model, "__name__", type(model))


def find_signature(frame: Any, model: KerasModel, picks: Any) -> Any:
    """None for columns of a type that MLflow has not, such as images: it then checks nothing."""
    try:
        return make_signature(frame, model, picks)
    except KeyError:
        return None


def make_signature(frame: Any, model: KerasModel, picks: Any) -> Any:
    """The columns that go in, by their types in the DataFrame, and those that come out."""
    import pyarrow as pa
    from mlflow.models import ModelSignature
    from mlflow.types.schema import ColSpec, Schema

    from sparktrain.scoring.picks import find_type

    inputs: list[Any] = [
        ColSpec(_find_type(frame.schema[name].dataType), name) for name in model.contract.columns
    ]
    outputs = {one.name: one for one in model.contract.info.outputs}
    answers: list[Any] = []
    for pick in picks:
        kind = find_type(pick, outputs[pick.output])
        depth = 0
        while pa.types.is_list(kind):
            kind, depth = kind.value_type, depth + 1
        answers.append(ColSpec(_nest(_plain(str(kind)), depth), pick.column))
    return ModelSignature(inputs=Schema(inputs), outputs=Schema(answers))


def _find_type(kind: Any) -> Any:
    from mlflow.types import schema

    name = kind.typeName()
    if name == "array":
        depth = 0
        while kind.typeName() == "array":
            kind, depth = kind.elementType, depth + 1
        return _nest(_plain(kind.typeName()), depth)
    vector: Any = schema.SparkMLVector
    return vector() if name in ("udt", "vectorudt") else _plain(name)


def _plain(name: str) -> Any:
    """MLflow's type of Spark's, or of Arrow's."""
    from mlflow.types import DataType

    head = name.split("(")[0]
    names = {
        "boolean": DataType.boolean,
        "bool": DataType.boolean,
        "long": DataType.long,
        "int64": DataType.long,
        "float": DataType.float,
        "double": DataType.double,
        "decimal": DataType.double,
        "string": DataType.string,
        "binary": DataType.binary,
        "date": DataType.datetime,
        "timestamp": DataType.datetime,
        "timestamp_ntz": DataType.datetime,
        "char": DataType.string,
        "varchar": DataType.string,
        **dict.fromkeys(("byte", "short", "integer"), DataType.integer),
        **dict.fromkeys(("int8", "int16", "int32"), DataType.integer),
    }
    return names[head]


def _nest(kind: Any, depth: int) -> Any:
    from mlflow.types.schema import Array

    for _ in range(depth):
        kind = Array(kind)
    return kind
