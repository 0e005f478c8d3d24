"""The estimators: Keras models trained on DataFrames, as stages of Spark ML."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.ml.base import Estimator
from pyspark.ml.util import MLReadable, MLReader, MLWritable, MLWriter

from sparktrain.driver import spark_facts
from sparktrain.errors import ConfigError
from sparktrain.ml.contract import Contract
from sparktrain.ml.fitting import Trained, train
from sparktrain.ml.grid import SharedFits, count_lanes, group
from sparktrain.ml.kept import Kept
from sparktrain.ml.model import KerasModel
from sparktrain.ml.packing import keep
from sparktrain.ml.params import (
    FIT_ROWS,
    MODEL_ROWS,
    TableParams,
    make_signature,
    set_defaults,
    set_given,
    with_params,
)
from sparktrain.ml.persistence import PartsReader, PartsWriter
from sparktrain.ml.prepare import Prepared, prepare
from sparktrain.ml.wishes import make_candidate, make_data_wishes, make_run_wishes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@with_params(*MODEL_ROWS, *FIT_ROWS)
class KerasEstimator(TableParams, Estimator[KerasModel], MLWritable, MLReadable["KerasEstimator"]):
    """Trains a Keras model on a DataFrame, through run().

        est = KerasEstimator(model=build_model, featureCols=["pixels"], labelCol="label",
                             loss="sparse_categorical_crossentropy", epochs=5, numWorkers=2)
        model = est.fit(df)

    Every Param has a setter and a getter; explainParams() tells what they mean. A loss of classes
    makes it a classifier, any other one a regressor: KerasClassifier and KerasRegressor say it
    themselves.
    """

    #: Not JSON: saved beside the others.
    _unsaved = ("model", "callbacks")
    #: Whether labels are classes; None if the loss says.
    _is_of_classes: bool | None = None

    def __init__(self, **params: Any) -> None:
        super().__init__()
        set_defaults(self)
        set_given(self, params)

    def setParams(self, **params: Any) -> KerasEstimator:  # noqa: N802 (Spark's name)
        """Sets several Params by keyword."""
        set_given(self, params)
        return self

    def _fit(self, dataset: DataFrame) -> KerasModel:
        found = _Search(dataset, [self], is_grid=False).fit([0], 1)[0]
        if isinstance(found, BaseException):
            raise found
        return found

    def fitMultiple(  # noqa: N802 (Spark's name)
        self,
        dataset: DataFrame,
        paramMaps: Sequence[Any],  # noqa: N803
    ) -> Iterator[tuple[int, KerasModel]]:
        """Candidates that differ in training only are trained in one run, on the same rows."""
        search = _Search(dataset, [self.copy(one) for one in paramMaps], is_grid=True)
        return SharedFits(search.groups, search.fit, search.count_lanes)

    def write(self) -> MLWriter:
        return PartsWriter(self)

    @classmethod
    def read(cls) -> MLReader[Any]:
        return PartsReader(cls)

    def _to_parts(self) -> dict[str, bytes]:
        validation = self.getOrDefault("validation")
        if hasattr(validation, "mapInArrow"):
            raise ConfigError(
                problem="This estimator cannot be saved: its validation is a DataFrame.",
                advice="Give a fraction or the name of a boolean column, or call"
                " estimator.clear(estimator.validation) first.",
            )
        parts: dict[str, bytes] = {}
        for name in self._unsaved:
            value = self.peek(name)
            if value is not None and not isinstance(value, str):
                parts.update(keep(name, value).to_parts())
        return parts

    def _from_parts(self, parts: Mapping[str, bytes], path: str) -> None:
        for name in self._unsaved:
            if (kept := Kept.from_parts(name, parts, path)) is not None:
                self._set(**{name: kept})

    def getOrDefault(self, param: Any) -> Any:  # noqa: N802 (Spark's name)
        """The value of a Param; what was saved is opened when it is first asked for."""
        value = self.peek(param)
        if isinstance(value, Kept):
            value = value.open()
            self._set(**{self._resolveParam(param).name: value})
        return value

    def peek(self, param: Any) -> Any:
        """As getOrDefault(), but what was saved stays unopened."""
        return super().getOrDefault(param)


class KerasClassifier(KerasEstimator):
    """A KerasEstimator whose labels are classes, whatever the loss is called."""

    _is_of_classes = True


class KerasRegressor(KerasEstimator):
    """A KerasEstimator whose labels are numbers."""

    _is_of_classes = False


# What help() and editors show: the Params by keyword.
KerasEstimator.__init__.__signature__ = make_signature(  # type: ignore[attr-defined]
    (*FIT_ROWS, *MODEL_ROWS)
)


def _make_recorder(estimator: KerasEstimator, frame: DataFrame) -> Any:
    """What writes its fits to MLflow, if it asks for that."""
    wish = estimator.getOrDefault("mlflow")
    if not wish:
        return None
    from sparktrain.ml.mlflow_log import Recorder

    return Recorder(wish, frame)


class _Search:
    """Fits of several candidates of one estimator to one DataFrame."""

    def __init__(
        self, frame: DataFrame, candidates: Sequence[KerasEstimator], is_grid: bool
    ) -> None:
        self._frame = frame
        self._estimators = candidates
        self._is_grid = is_grid
        self._candidates = [make_candidate(one.peek, one._is_of_classes) for one in candidates]
        self._data = [
            make_data_wishes(one.peek, packed.model, one._is_of_classes)
            for one, packed in zip(candidates, self._candidates, strict=True)
        ]
        self._runs = [make_run_wishes(one.peek) for one in candidates]
        self.groups = group(list(zip(self._data, self._runs, strict=True)))
        self._prepared: dict[int, Prepared] = {}
        self._recorders = [_make_recorder(one, frame) for one in candidates]
        self._lock = threading.Lock()

    def count_lanes(self, threads: int) -> int:
        nodes = max(wishes.num_workers for wishes in self._runs)
        slots = spark_facts.count_slots(self._frame.sparkSession)
        return count_lanes(threads, slots, nodes, len(self._candidates))

    def fit(self, positions: Sequence[int], lanes: int) -> list[KerasModel | BaseException]:
        """Trains candidates of one group, in one run."""
        first = positions[0]
        found = train(
            self._frame.sparkSession,
            self._prepare(first),
            [self._candidates[position] for position in positions],
            self._runs[first],
            is_grid=self._is_grid,
            is_beside_others=lanes > 1,
        )
        models: list[KerasModel | BaseException] = [
            self._make_model(position, one) if isinstance(one, Trained) else one
            for position, one in zip(positions, found, strict=True)
        ]
        for position, model in zip(positions, models, strict=True):
            if (recorder := self._recorders[position]) is not None:
                try:
                    recorder.record(self._estimators[position], model)
                except Exception as error:  # a model is worth more than its record
                    what = f"{type(error).__name__}: {error}"
                    warnings.warn(f"MLflow did not record the fit: {what}", stacklevel=2)
        return models

    def _prepare(self, position: int) -> Prepared:
        """Once for a group: classes and moments are of the rows, not of a candidate."""
        number = next(i for i, members in enumerate(self.groups) if position in members)
        with self._lock:
            if number not in self._prepared:
                self._prepared[number] = prepare(self._frame, self._data[position])
            return self._prepared[number]

    def _make_model(self, position: int, trained: Trained) -> KerasModel:
        fitted = trained.fitted
        values = {
            **fitted.contract,
            "run_dir": trained.run_dir,
            "stopped": fitted.stopped,
            "board_command": trained.board_command,
        }
        model = KerasModel.make(
            fitted.model,
            Contract.from_dict(values),
            trained.history,
            fitted.summary,
            fitted.classes,
        )
        estimator = self._estimators[position]
        # The same uid, as all models of Spark ML: a grid's maps then speak of its Params too.
        model._resetUid(estimator.uid)
        return estimator._copyValues(model)
