"""The model that a fit makes: a Transformer that knows what goes in and what comes out."""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.ml.base import Model
from pyspark.ml.util import MLReadable, MLReader, MLWritable, MLWriter

from sparktrain.driver.function import find_own_path
from sparktrain.errors import ConfigError
from sparktrain.events import make_command
from sparktrain.ml.contract import Contract
from sparktrain.ml.outputs import Names, finish, plan_columns
from sparktrain.ml.params import MODEL_ROWS, TableParams, set_defaults, with_params
from sparktrain.ml.persistence import PartsReader, PartsWriter
from sparktrain.scoring.own_classes import load_with
from sparktrain.scoring.spec import KERAS, ModelSource, Pick

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame


@with_params(*MODEL_ROWS)
class KerasModel(TableParams, Model, MLWritable, MLReadable["KerasModel"]):
    """What KerasEstimator.fit() gives, and KerasModel.load().

        scored = model.transform(test)     # all columns of test are kept
        model.history                      # a row for each epoch
        model.write().overwrite().save("path")

    transform() checks the DataFrame before any job: SchemaError names the column that is wrong.
    """

    def __init__(self) -> None:
        super().__init__()
        set_defaults(self)
        self._packed = b""
        self._classes = b""
        self._contract: Contract | None = None
        self._history: tuple[Mapping[str, float], ...] = ()
        self._summary = ""
        #: Of the fit, if it was recorded in MLflow.
        self.mlflow_run_id: str | None = None

    @classmethod
    def make(
        cls,
        packed: bytes,
        contract: Contract,
        history: Sequence[Mapping[str, float]],
        summary: str,
        classes: bytes = b"",
    ) -> KerasModel:
        one = cls()
        one._packed, one._classes, one._contract = packed, classes, contract
        one._history, one._summary = tuple(history), summary
        return one

    @property
    def contract(self) -> Contract:
        """What goes in, what comes out, classes, standardisation, versions."""
        if self._contract is None:
            raise ConfigError(
                problem="This KerasModel is empty.",
                advice="Models come from KerasEstimator.fit() and KerasModel.load().",
            )
        return self._contract

    @property
    def history(self) -> pd.DataFrame:
        """Loss and metrics, a row for each epoch."""
        import pandas as pd

        frame = pd.DataFrame([dict(row) for row in self._history])
        return frame.set_index(frame["epoch"].astype(int)).drop(columns="epoch") if len(
            frame
        ) else frame  # fmt: skip

    @property
    def epochs(self) -> tuple[Mapping[str, float], ...]:
        """The same as plain values."""
        return self._history

    @property
    def run_dir(self) -> str:
        """Where the run has its logs and events; empty if it is not known."""
        return self.contract.run_dir

    @property
    def tensorboard_command(self) -> str:
        """What shows the events of the fit, in a terminal; empty if the run is not known."""
        if self.contract.board_command:
            return self.contract.board_command
        return make_command(str(Path(self.run_dir, "tensorboard"))) if self.run_dir else ""

    @property
    def classes(self) -> tuple[Any, ...]:
        """The names of the classes by position; empty if they have none."""
        return self.contract.labels[0].classes

    def summary(self) -> str:
        """What Keras says about the model, as text."""
        return self._summary

    def plot(self, path: str | None = None) -> Any:
        """Draws the curves of the loss and every metric; needs matplotlib.

        Args:
            path: Where to write the picture; its ending says the format. Defaults to None.

        Returns:
            The matplotlib figure.
        """
        from sparktrain.ml.plotting import plot

        return plot(self._history, path)

    def keras_model(self) -> Any:
        """The model itself, loaded with Keras in this process.

        Layers, losses and metrics of your own come with it: load only what you trust. Where one of
        these could not travel, or is a lambda, the model is not compiled: it predicts as it did,
        and is trained on after a compile().
        """
        import importlib

        models: Any = importlib.import_module("keras.models")
        with tempfile.TemporaryDirectory(prefix="sparktrain-model-") as folder:
            path = self._write(Path(folder, "model.keras"))
            try:
                return load_with(models, str(path), self._classes)
            except (TypeError, ValueError):
                return load_with(models, str(path), self._classes, compile=False)

    def export(self, path: str) -> str:
        """Writes the .keras file, to any place that fsspec knows; returns the path."""
        import fsspec

        if not path.endswith(".keras"):
            raise ConfigError(
                problem=f"export() got {path!r}.", advice="Expected a name that ends in .keras."
            )
        with fsspec.open(path, "wb") as stream:
            stream.write(self._packed)
        return path

    def _write(self, path: Path) -> Path:
        path.write_bytes(self._packed)
        return path

    @property
    def source(self) -> ModelSource:
        """The model as scoring takes it."""
        key = hashlib.sha256(self._packed + self._classes).hexdigest()
        return ModelSource(
            kind=KERAS,
            name=f"{self.uid}.keras",
            key=key,
            packed=self._packed,
            classes=self._classes,
            python_path=find_own_path(sys.path),
        )

    def _transform(self, dataset: DataFrame) -> DataFrame:
        from sparktrain.driver.scores import score_frame

        added = plan_columns(self.contract, self._find_names(), list(dataset.columns))
        scored = score_frame(
            dataset,
            self.source,
            self.contract.info,
            feeds=self._find_feeds(),
            picks=added.picks,
            **self._find_options(),
        )
        return finish(scored, added)

    def plan_scoring(self, columns: list[str]) -> tuple[tuple[Pick, ...], dict[str, Any]]:
        """What is asked of the scorer for rows with these columns, and how."""
        return plan_columns(self.contract, self._find_names(), columns).picks, self._find_options()

    def _find_options(self) -> dict[str, Any]:
        get = self.getOrDefault
        feeds = self._find_feeds()
        trained = {
            column: place
            for name, columns in self.contract.feeds
            for column, place in zip(columns, feeds[name], strict=False)
        }
        fed = {column for columns in feeds.values() for column in columns}
        options: dict[str, Any] = {"batch_size": get("scoringBatchSize")}
        for option in ("fill", "pad", "shapes"):
            given = get(option) or {}
            # What was said of a column holds for the one in its place.
            kept = {trained[name]: one for name, one in given.items() if name in trained}
            new = {name: one for name, one in given.items() if name in fed - set(trained)}
            options[option] = {**kept, **new}
        return options

    def _find_names(self) -> Names:
        get = self.getOrDefault
        label = get("labelCol")
        if isinstance(label, Mapping) and len(label) == 1:
            label = next(iter(label.values()))
        return Names(
            prediction=get("predictionCol") or "",
            probability=get("probabilityCol") or "",
            raw=get("rawPredictionCol") or "",
            predicted_label=get("predictedLabelCol") or "",
            label_index=get("labelIndexCol") or "",
            label=label if isinstance(label, str) else None,
            outputs=get("outputCols") or {},
        )

    def _find_feeds(self) -> dict[str, tuple[str, ...]]:
        """The columns of each input: as trained, or others of the same number by their names."""
        trained = dict(self.contract.feeds)
        wished = self.getOrDefault("featureCols")
        if not wished:
            return trained
        if isinstance(wished, Mapping) and set(wished) == set(trained):
            return {name: tuple(wished[name]) for name in trained}
        if isinstance(wished, Mapping):
            wished = [column for columns in wished.values() for column in columns]
        columns = list(self.contract.columns)
        # Several inputs may have found their columns by name: then their order is not that of fit.
        is_by_name = all(parts == (name,) for name, parts in trained.items())
        if list(wished) == columns or (is_by_name and set(wished) == set(columns)):
            return trained
        if set(wished) == set(columns):
            raise ConfigError(
                problem=f"featureCols has {', '.join(wished)}, but the model was trained with"
                f" {', '.join(columns)}.",
                advice="Name the columns in that order; exchange them in the DataFrame, if you mean"
                " to.",
            )
        if len(wished) != len(columns):
            raise ConfigError(
                problem=f"featureCols has {', '.join(wished)}, but the model was trained with"
                f" {', '.join(columns)}.",
                advice="Name as many columns, in the same order.",
            )
        renamed = dict(zip(columns, wished, strict=True))
        return {name: tuple(renamed[column] for column in parts) for name, parts in trained.items()}

    def write(self) -> MLWriter:
        return PartsWriter(self)

    @classmethod
    def read(cls) -> MLReader[KerasModel]:
        return PartsReader(cls)

    def _to_parts(self) -> dict[str, bytes]:
        own = {"classes": self._classes} if self._classes else {}
        return {
            **own,
            "model": self._packed,
            "contract": self.contract.to_json().encode(),
            "history": json.dumps([dict(row) for row in self._history]).encode(),
            "summary": self._summary.encode(),
        }

    def _from_parts(self, parts: Mapping[str, bytes], path: str) -> None:
        self._packed, self._classes = parts["model"], parts.get("classes", b"")
        self._contract = Contract.from_json(parts["contract"].decode(), path)
        self._history = tuple(json.loads(parts["history"]))
        self._summary = parts["summary"].decode()
