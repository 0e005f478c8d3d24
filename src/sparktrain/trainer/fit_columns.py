"""The tables of a fit as Keras takes them: (x, y) or (x, y, weight)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sparktrain.fit_spec import TRAIN, Candidate, DataSpec
from sparktrain.trainer.fit_casts import cast
from sparktrain.trainer.fit_inputs import InputPlan, make_input
from sparktrain.trainer.fit_labels import LabelPlan, make_label

if TYPE_CHECKING:
    from sparktrain.trainer.context import Context


def make_fit_dataset(
    context: Context,
    table: str,
    data: DataSpec,
    candidate: Candidate,
    inputs: Sequence[InputPlan],
    labels: Sequence[LabelPlan],
    is_named: tuple[bool, bool],
) -> Any:
    """A table's rows in the form of the model; mixed if they are to be trained on.

    Args:
        is_named: Whether the model's inputs are a dict, and whether its outputs are.
    """
    options: dict[str, Any] = {"batch_size": candidate.batch_size, "seed": candidate.seed}
    if table == TRAIN:
        options["shuffle"] = candidate.window
    weight = data.weight
    is_plain = all(one.is_plain for one in inputs) and all(one.is_plain for one in labels)
    is_single = len(inputs) == 1 and len(labels) == 1 and not any(is_named)
    if is_plain and is_single and _is_weight_plain(context, weight):
        # Nothing to do for a batch: as fast as ctx.dataset() itself.
        feature, label = inputs[0].columns[0], labels[0].spec.column
        return context.dataset(table, features=[feature], label=label, weight=weight, **options)
    import tensorflow as tf

    from sparktrain.trainer.autotune import leave_autotuning_out

    names = list(data.names)

    def assemble(row: Any) -> Any:
        row = row if len(names) > 1 else {names[0]: row}
        x = _pack([(plan.name, make_input(row, plan)) for plan in inputs], is_named[0])
        y = _pack([(plan.output, make_label(row, plan)) for plan in labels], is_named[1])
        return (x, y) if weight is None else (x, y, cast(row[weight], "float32"))

    dataset = context.dataset(table, features=names, **options)
    mapped = dataset.map(tf.autograph.experimental.do_not_convert(assemble))
    return leave_autotuning_out(mapped.prefetch(tf.data.AUTOTUNE))


def _pack(named: list[tuple[str, Any]], is_named: bool) -> Any:
    """A dict, the only one, or all in order; not a list, which tf.data makes one tensor of."""
    if is_named:
        return dict(named)
    values = tuple(value for _, value in named)
    return values[0] if len(values) == 1 else values


def _is_weight_plain(context: Context, weight: str | None) -> bool:
    if weight is None:
        return True
    columns = context.feed.find(TRAIN, context.rank).columns
    return any(column.name == weight and column.dtype == "float32" for column in columns)
