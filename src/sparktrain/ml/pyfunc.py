"""A trained model as MLflow loads it: scores pandas DataFrames, with or without Spark."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sparktrain.errors import ConfigError
from sparktrain.ml.contract import Contract
from sparktrain.scoring.picks import find_type
from sparktrain.scoring.plan import Answers, Choices, make_plan
from sparktrain.scoring.spec import KERAS, ModelSource, Pick
from sparktrain.scoring.task import answer
from sparktrain.scoring.udf import find_fields

if TYPE_CHECKING:
    import pandas as pd

    from sparktrain.ml.model import KerasModel

_MODEL, _ABOUT, _CLASSES = "model.keras", "sparktrain.json", "classes.pickle"


def write_pyfunc(
    model: KerasModel,
    picks: tuple[Pick, ...],
    options: Mapping[str, Any],
    types: Mapping[str, str],
    folder: Path,
) -> Path:
    """All that scoring needs, in a folder of its own.

    Args:
        types: Spark's names of the types that the columns had in training.
    """
    folder.mkdir(parents=True)
    model.export(str(folder / _MODEL))
    (folder / _CLASSES).write_bytes(model.source.classes)
    about = {
        "contract": model.contract.to_json(),
        "picks": [vars(pick) | {"classes": list(pick.classes)} for pick in picks],
        "options": dict(options),
        "types": dict(types),
    }
    (folder / _ABOUT).write_text(json.dumps(about))
    return folder


def _load_pyfunc(path: str) -> PyfuncModel:
    """What MLflow calls."""
    return PyfuncModel(Path(path))


class PyfuncModel:
    """Has the predict() that MLflow asks for."""

    def __init__(self, folder: Path) -> None:
        about = json.loads((folder / _ABOUT).read_text())
        packed = (folder / _MODEL).read_bytes()
        # Models that were recorded by earlier versions have none.
        own = folder / _CLASSES
        classes = own.read_bytes() if own.exists() else b""
        key = hashlib.sha256(packed + classes).hexdigest()
        self._source = ModelSource(KERAS, _MODEL, key, packed=packed, classes=classes)
        self._contract = Contract.from_json(about["contract"], str(folder))
        picks = tuple(Pick(**{**one, "classes": tuple(one["classes"])}) for one in about["picks"])
        outputs = {one.name: one for one in self._contract.info.outputs}
        types = tuple(find_type(pick, outputs[pick.output]) for pick in picks)
        self._answers = Answers(picks, types)
        self._choices = Choices(**about["options"])
        self._types: dict[str, str] = about["types"]

    def predict(self, frame: pd.DataFrame, params: Any = None) -> pd.DataFrame:
        """A row for each row: prediction first, then what else the model says."""
        import pandas as pd

        missing = [name for name in self._contract.columns if name not in frame.columns]
        if missing:
            raise ConfigError(
                problem=f"predict() got no column {missing[0]!r}.",
                advice=f"The model takes {', '.join(self._contract.columns)}.",
            )
        arrays = [
            _to_array(frame[name], self._types.get(name, "")) for name in self._contract.columns
        ]
        batch = pa.RecordBatch.from_arrays(arrays, names=list(self._contract.columns))
        feeds = dict(self._contract.feeds)
        fields = find_fields(batch)
        plan = make_plan(
            fields, self._source, self._contract.info, feeds, self._answers, self._choices
        )

        def once() -> Iterator[pa.RecordBatch]:
            yield batch

        (_, found), *_ = answer(plan, once())
        columns = {
            name: column.to_pandas()
            for name, column in zip(self._answers.names, found, strict=True)
        }
        return pd.DataFrame(columns, index=frame.index)


def _to_array(values: Any, kind: str) -> pa.Array:
    """A column of numbers, texts, lists, arrays, or vectors of Spark ML."""
    first = next((one for one in values if one is not None), None)
    if hasattr(first, "toArray"):
        return pa.array([None if one is None else one.toArray() for one in values])
    if isinstance(first, np.ndarray):
        values = values.map(_to_lists)
    array = pa.Array.from_pandas(values)
    # pandas has times only, and a model of dates was trained on days.
    return array.cast(pa.date32(), safe=False) if kind == "date" else array


def _to_lists(value: Any) -> Any:
    """Arrow takes arrays of one dimension as lists: MLflow makes others of nested ones."""
    if isinstance(value, np.ndarray) and (value.ndim > 1 or value.dtype == object):
        return [_to_lists(one) for one in value]
    return value
