"""What a candidate's fit needs, decided with the model at hand: the trainer sees it first."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sparktrain.errors import SchemaError
from sparktrain.fit_spec import (
    TRAIN,
    VALIDATION,
    Candidate,
    DataSpec,
    Moments,
    find_kind,
    split_loss,
)
from sparktrain.scoring.model_info import describe_keras, has_names
from sparktrain.trainer.fit_inputs import InputPlan, guess_inputs, plan_inputs
from sparktrain.trainer.fit_labels import LabelPlan, match_labels, plan_label
from sparktrain.trainer.fit_model import (
    build_model,
    compile_model,
    has_inputs,
    open_model,
    standardise,
)
from sparktrain.version import __version__

if TYPE_CHECKING:
    from sparktrain.data.schema import Column
    from sparktrain.trainer.context import Context


@dataclass(frozen=True)
class FitPlan:
    """A compiled model, and how rows become what it takes."""

    model: Any
    inputs: tuple[InputPlan, ...]
    labels: tuple[LabelPlan, ...]
    #: Whether the model's inputs are a dict, and whether its outputs are.
    is_named: tuple[bool, bool]
    #: What a KerasModel remembers, as JSON takes it.
    contract: Mapping[str, Any]


def make_fit_plan(context: Context, data: DataSpec, candidate: Candidate) -> FitPlan:
    """Makes the model and fits the columns to it; to be called in the strategy's scope."""
    columns = {one.name: one for one in context.feed.find(TRAIN, context.rank).columns}
    if data.has_validation:
        found = {one.name: one for one in context.feed.find(VALIDATION, context.rank).columns}
        check_lengths(columns, found)
    model = open_model(candidate.model)
    if not has_inputs(model):
        model = build_model(model, guess_inputs(data, columns))
    inputs = plan_inputs(data, columns, describe_keras(model).inputs)
    if data.moments:
        model = standardise(model, _find_moments(inputs, columns, data.moments))
    compile_model(model, candidate, candidate.model.name)
    info = describe_keras(model)
    matched = match_labels(data.labels, info.outputs)
    losses = split_loss(model.loss, tuple(one.name for _, one in matched))
    labels = tuple(
        plan_label(spec, columns[spec.column], output, find_kind(loss), candidate.is_of_classes)
        for (spec, output), loss in zip(matched, losses, strict=True)
    )
    contract = {
        "info": info.to_dict(),
        "feeds": [[plan.name, list(plan.columns)] for plan in inputs],
        "labels": [_describe_label(plan) for plan in labels],
        "weight": data.weight,
        "moments": {
            name: {"mean": list(one.mean), "variance": list(one.variance)}
            for name, one in data.moments.items()
        },
        "versions": find_versions(),
    }
    return FitPlan(model, inputs, labels, has_names(model), contract)


def check_lengths(train: Mapping[str, Column], validation: Mapping[str, Column]) -> None:
    """That arrays to validate with have the lengths of those to train on, as first rows told."""
    for name, wanted in train.items():
        found = validation[name]
        if found.shape != wanted.shape:
            raise SchemaError(
                table=VALIDATION,
                column=name,
                problem=f"A row has the shape {found.shape}, but in {TRAIN!r} {wanted.shape}.",
                advice="Give both the same length, or declare shapes={...} or pad={...}.",
            )


def _describe_label(plan: LabelPlan) -> dict[str, Any]:
    return {
        "column": plan.spec.column,
        "output": plan.output,
        "task": plan.task,
        "num_classes": plan.num_classes,
        "classes": list(plan.spec.classes),
        "is_logits": plan.is_logits,
    }


def find_versions() -> dict[str, str]:
    import keras
    import tensorflow as tf

    return {
        "sparktrain": __version__,
        "keras": keras.__version__,
        "tensorflow": tf.__version__,
        "python": platform.python_version(),
    }


def _find_moments(
    inputs: Sequence[InputPlan], columns: Mapping[str, Column], moments: Mapping[str, Moments]
) -> dict[str, tuple[Any, Any]]:
    """Mean and variance of each input that has a standardised column, in the shape of a row."""
    found = {}
    for plan in inputs:
        if not set(plan.columns) & set(moments):
            continue
        if None in plan.shape or not plan.dtype.startswith(("float", "bfloat")):
            raise SchemaError(
                table=TRAIN,
                column=", ".join(plan.columns),
                problem=f"standardize names it, but the model's input {plan.name!r} has the shape"
                f" {plan.shape} of {plan.dtype}.",
                advice="Expected an input of floats with known lengths.",
            )
        means: list[Any] = []
        variances: list[Any] = []
        for name in plan.columns:
            shape = tuple(one or 0 for one in columns[name].shape) or (1,)
            size = math.prod(shape)
            own = moments.get(name, Moments((0.0,) * size, (1.0,) * size))
            means.append(np.array(own.mean).reshape(shape))
            variances.append(np.array(own.variance).reshape(shape))
        row = tuple(size or 1 for size in plan.shape)
        mean, variance = (
            np.concatenate(parts, axis=-1).reshape(row).astype("float32")
            for parts in (means, variances)
        )
        found[plan.name] = (mean, variance)
    return found
