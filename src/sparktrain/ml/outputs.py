"""The columns that transform() adds: asked of the scorer, then finished as Spark ML has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparktrain.driver.tables import quote
from sparktrain.errors import ConfigError
from sparktrain.fit_spec import CLASSIFICATION
from sparktrain.ml.contract import Contract, LabelContract
from sparktrain.ml.labels import TEXTS, to_index
from sparktrain.scoring.spec import ARGMAX, AS_IS, CLASS, FIRST, PROBABILITIES, Pick, TensorInfo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Names:
    """The Params of a model that name columns; an empty name leaves its column out."""

    prediction: str
    probability: str
    raw: str
    predicted_label: str
    label_index: str
    #: As it is now: the label's column, if there is one.
    label: str | None
    outputs: Mapping[str, str]


@dataclass(frozen=True)
class Added:
    """What the scorer is asked for, and which of it becomes vectors."""

    picks: tuple[Pick, ...]
    vectors: tuple[str, ...] = ()
    #: The raw column of a single probability or logit, which becomes two values.
    pair: str = ""
    is_logits: bool = False
    #: The column of labels -> the column of their positions.
    index: tuple[str, str, tuple[Any, ...], int] | None = None


def plan_columns(contract: Contract, names: Names, columns: list[str]) -> Added:
    """Which columns are added to a DataFrame that has these."""
    outputs = {one.name: one for one in contract.info.outputs}
    label = contract.labels[0]
    is_classifier = len(outputs) == 1 and label.task == CLASSIFICATION
    check_outputs(names.outputs, list(outputs), is_classifier)
    if is_classifier:
        added = _plan_classes(label, outputs[label.output], names, columns)
    elif len(outputs) == 1:
        how = FIRST if _is_single(outputs[label.output]) else AS_IS
        column = names.outputs.get(label.output, names.prediction)
        added = Added((Pick(label.output, column, how),) if column else ())
    else:
        picks = [
            Pick(name, names.outputs.get(name, name), FIRST if _is_single(one) else AS_IS)
            for name, one in outputs.items()
        ]
        added = Added(tuple(pick for pick in picks if pick.column))
    made = [pick.column for pick in added.picks]
    made += [added.index[1]] if added.index is not None else []
    # Spark does not tell names apart by case.
    known = {name.casefold() for name in columns}
    taken = sorted(one for one in made if one.casefold() in known)
    taken = taken or sorted({one for one in made if made.count(one) > 1})
    if taken:
        setter = "setOutputCols" if len(outputs) > 1 else "setPredictionCol"
        raise ConfigError(
            problem=f"The model adds a column {taken[0]!r}, which the DataFrame has already.",
            advice=f"Drop it, or give the new one another name, as with {setter}.",
        )
    return added


def check_outputs(named: Mapping[str, str], known: list[str], is_classifier: bool) -> None:
    """That outputCols names outputs of a model that has these; raises ConfigError."""
    if named and is_classifier:
        raise ConfigError(
            problem=f"outputCols names {', '.join(named)}, but the model is a classifier of one"
            " output.",
            advice="Name its columns with predictionCol, probabilityCol, rawPredictionCol and"
            " predictedLabelCol.",
        )
    if unknown := sorted(set(named) - set(known)):
        raise ConfigError(
            problem=f"outputCols names {', '.join(unknown)}, which the model does not have.",
            advice=f"Its outputs are {', '.join(known)}.",
        )


def _plan_classes(
    label: LabelContract, output: TensorInfo, names: Names, columns: list[str]
) -> Added:
    picks = [
        Pick(label.output, names.prediction, ARGMAX, is_logits=label.is_logits),
        Pick(label.output, names.probability, PROBABILITIES, is_logits=label.is_logits),
        Pick(label.output, names.raw, AS_IS),
    ]
    index = None
    # It may have more values than there were classes to train on.
    width = 2 if _is_single(output) else max(output.shape[-1] or 0, len(label.classes))
    if label.classes:
        picks.append(
            Pick(
                label.output,
                names.predicted_label,
                CLASS,
                classes=_name_all(label, width),
                is_logits=label.is_logits,
            )
        )
        if names.label in columns and names.label is not None and names.label_index:
            index = (names.label, names.label_index, label.classes, width)
    return Added(
        tuple(pick for pick in picks if pick.column),
        tuple(name for name in (names.probability, names.raw) if name),
        names.raw if _is_single(output) else "",
        label.is_logits,
        index,
    )


def _is_single(output: TensorInfo) -> bool:
    return output.shape in ((), (1,))


def finish(scored: DataFrame, added: Added) -> DataFrame:
    """Vectors in the place of arrays, and the positions of labels."""
    if not added.vectors and added.index is None:
        return scored
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

    kinds = dict(scored.dtypes)
    found: list[Any] = []
    for name in scored.columns:
        column = F.col(quote(name))
        if name == added.pair:
            value = (column[0] if kinds[name].startswith("array") else column).cast("double")
            # As Spark's own classifiers have it: the second value grows with the second class.
            other = -value if added.is_logits else 1 - value
            column = F.when(value.isNotNull(), F.array(other, value))
        if name in added.vectors:
            column = array_to_vector(column.cast("array<double>")).alias(name)
        found.append(column)
    if added.index is not None:
        label, name, classes, num_classes = added.index
        kind = kinds.get(label, "")
        place = _find_place(label, classes, kind, num_classes)
        found.append(place.cast("double").alias(name))
    return scored.select(*found)


def _name_all(label: LabelContract, width: int) -> tuple[Any, ...]:
    return (*label.classes, *(None,) * (width - len(label.classes)))


def _find_place(label: str, classes: tuple[Any, ...], kind: str, num_classes: int) -> Any:
    """A label's position; one behind the last for a label that the model has never seen."""
    from pyspark.sql import functions as F  # noqa: N812

    column = F.col(quote(label))
    if kind == "vector":
        from pyspark.ml.functions import vector_to_array

        column, kind = vector_to_array(column), "array"
    if kind.startswith("array"):
        # One-hot, or a probability for each class: the largest one is that of the label.
        return F.array_position(column, F.array_max(column)) - 1
    if kind not in TEXTS and all(isinstance(one, str) for one in classes):
        return column  # labels were positions with names
    return F.when(column.isNotNull(), F.coalesce(to_index(label, classes), F.lit(num_classes)))
