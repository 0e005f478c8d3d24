"""Labels in the form that the loss wants, and what the model's outputs then mean."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparktrain.data.schema import Column
from sparktrain.errors import ConfigError, SchemaError
from sparktrain.fit_spec import (
    BINARY,
    CATEGORICAL,
    CLASSIFICATION,
    EACH,
    NO_CLASSES,
    REGRESSION,
    SPARSE,
    TRAIN,
    VALUES,
    LabelSpec,
    LossKind,
)
from sparktrain.scoring.spec import TensorInfo
from sparktrain.trainer.fit_casts import cast, check
from sparktrain.trainer.fit_inputs import reshape


@dataclass(frozen=True)
class LabelPlan:
    """How the labels of one output are made.

    Attributes:
        output: The model's name of it.
        task: What the output means: one of the tasks of fit_spec.
        num_classes: For CLASSIFICATION.
        dtype, shape: Of a row's label; None leaves the shape as it is.
        one_hot: How many places a position becomes; 0 for none.
        positions: Of how many classes labels are the positions; 0 where they are values.
    """

    spec: LabelSpec
    output: str
    task: str
    num_classes: int
    is_logits: bool
    dtype: str
    shape: tuple[int | None, ...] | None
    one_hot: int
    is_plain: bool
    positions: int = 0


def match_labels(
    labels: Sequence[LabelSpec], outputs: Sequence[TensorInfo]
) -> list[tuple[LabelSpec, TensorInfo]]:
    """Each column of labels with its output; outputs without one have no loss."""
    if len(labels) == 1 and (len(outputs) == 1 or not labels[0].output):
        if len(outputs) > 1:
            raise ConfigError(
                problem=f"labelCol is {labels[0].column!r}, but the model has {len(outputs)}"
                f" outputs ({', '.join(one.name for one in outputs)}).",
                advice="Say which column is for which output: labelCol={'output': 'column'}.",
            )
        return [(labels[0], outputs[0])]
    known = {one.name: one for one in outputs}
    named = {label.output: label for label in labels}
    if set(known) != set(named):
        raise ConfigError(
            problem=f"labelCol names the outputs {', '.join(named)}, but the model has"
            f" {', '.join(known)}.",
            advice="Name every output of the model once.",
        )
    return [(named[name], known[name]) for name in known]


def plan_label(
    spec: LabelSpec, column: Column, output: TensorInfo, kind: LossKind, is_of_classes: bool | None
) -> LabelPlan:
    """What becomes of a column of labels; raises SchemaError for what does not fit the output.

    Args:
        is_of_classes: What the user said about labels; None if the loss says.
    """
    shape = column.shape
    if len(output.shape) > 1 or None in output.shape:
        return _plan_many(spec, column, output, kind)
    width = output.shape[0] if output.shape else 1
    width = width or 1
    is_scalar = shape in ((), (1,))
    is_of_classes = kind.is_of_classes if is_of_classes is None else is_of_classes
    if column.dtype == "string":
        raise SchemaError(
            table=TRAIN,
            column=column.name,
            problem="It has strings as labels, but the loss is not one of classes.",
            advice="Use KerasClassifier, or a loss such as 'sparse_categorical_crossentropy'.",
        )
    if not is_of_classes or (not is_scalar and (kind.labels == BINARY or width == 1)):
        task = REGRESSION if not is_of_classes else VALUES
        return _plan_values(spec, column, output, task)
    if kind.labels == NO_CLASSES:
        raise ConfigError(
            problem=f"The loss {kind.name} of the output {output.name!r} has no classes that the"
            f" labels of {column.name!r} could be.",
            advice="Expected a loss such as 'sparse_categorical_crossentropy', or one of your own"
            " that takes positions of classes.",
        )
    num_classes = max(width, 2)
    if spec.num_classes is not None and spec.num_classes > num_classes:
        raise SchemaError(
            table=TRAIN,
            column=column.name,
            problem=f"It has labels of {spec.num_classes} classes, 0 to {spec.num_classes - 1},"
            f" but the model's output {output.name!r} has {num_classes}.",
            advice=f"Give the model's last layer {spec.num_classes} units.",
        )
    if not is_scalar and (shape != (width,) or kind.labels == SPARSE):
        raise _misfit(column, output)
    if width == 1:
        dtype, wished, one_hot = "float32", output.shape, 0
    elif kind.labels in (CATEGORICAL, BINARY, EACH) or not is_scalar:
        dtype, wished, one_hot = "float32", output.shape, width if is_scalar else 0
    else:  # a loss of the user's own takes positions, as the sparse ones of Keras
        dtype, wished, one_hot = "int32", (), 0
    # Losses of one value take any number: make_label() looks at them.
    is_plain = width > 1 and not one_hot and column.dtype == dtype and shape == wished
    if dtype == "int32" and column.dtype in ("int8", "int16", "int32", "int64") and not shape:
        is_plain = True  # losses take any whole numbers
    return LabelPlan(
        spec, output.name, CLASSIFICATION, num_classes, kind.is_logits, dtype, wished, one_hot,
        is_plain, positions=num_classes if is_scalar else 0,
    )  # fmt: skip


def _plan_values(spec: LabelSpec, column: Column, output: TensorInfo, task: str) -> LabelPlan:
    size = math.prod(one or 0 for one in output.shape)
    if None not in column.shape and math.prod(one or 0 for one in column.shape) != size:
        raise _misfit(column, output)
    is_plain = column.dtype == "float32" and column.shape == output.shape
    return LabelPlan(spec, output.name, task, 0, False, "float32", output.shape, 0, is_plain)


def _plan_many(spec: LabelSpec, column: Column, output: TensorInfo, kind: LossKind) -> LabelPlan:
    """For outputs of several axes: images, sequences. Labels go as they are."""
    wished = output.shape[:-1] if kind.labels == SPARSE else output.shape
    is_known = None not in wished and None not in column.shape
    sizes = [math.prod(one or 0 for one in shape) for shape in (column.shape, wished)]
    if is_known and sizes[0] != sizes[1]:
        raise _misfit(column, output)
    dtype = "int32" if kind.labels == SPARSE else "float32"
    shape = wished if is_known else None
    is_plain = column.dtype == dtype and column.shape == wished
    is_sparse = kind.labels == SPARSE and kind.ignored is None
    positions = (output.shape[-1] or 0) if is_sparse else 0
    return LabelPlan(
        spec, output.name, VALUES, 0, kind.is_logits, dtype, shape, 0, is_plain, positions
    )


def _misfit(column: Column, output: TensorInfo) -> SchemaError:
    return SchemaError(
        table=TRAIN,
        column=column.name,
        problem=f"A label has the shape {column.shape}, but the model's output {output.name!r}"
        f" has {output.shape}.",
        advice="Give the model's last layer that shape, or choose another loss or column.",
    )


def make_label(row: Mapping[str, Any], plan: LabelPlan) -> Any:
    """The labels of one output, of a batch of columns."""
    import tensorflow as tf

    tensor = row[plan.spec.column]
    if plan.is_plain:
        return tensor
    if plan.one_hot:
        # A position that is none would be a row of zeros.
        position = tf.cast(check(tensor, (0, plan.one_hot - 1)), tf.int32)
        return tf.one_hot(tf.reshape(position, (-1,)), plan.one_hot)
    if plan.positions and plan.dtype == "float32":
        tensor = check(tensor, (0, plan.positions - 1))
    tensor = cast(tensor, plan.dtype)
    return tensor if plan.shape is None else reshape(tensor, plan.shape)
