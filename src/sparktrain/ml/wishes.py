"""From an estimator's Params to what a fit is made of; what cannot be is refused here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparktrain.errors import ConfigError
from sparktrain.fit_spec import Candidate, ModelPart, find_kind, split_loss
from sparktrain.ml.fitting import RunWishes
from sparktrain.ml.outputs import check_outputs
from sparktrain.ml.packing import find_loss, find_outputs, pack_callbacks, pack_model
from sparktrain.ml.prepare import DataWishes

#: Rows within which shuffle=True mixes.
WINDOW = 10_000


def make_candidate(get: Any, is_of_classes: bool | None) -> Candidate:
    """One training, packed; raises ConfigError for what can be known to fail.

    Args:
        get: Gives the value of a Param by its name; what was saved may be unopened.
        is_of_classes: What the kind of estimator says about labels; None if the loss does.
    """
    part = pack_model(get("model"), get("modelArgs"))
    is_compiled, _ = find_loss(part)
    if is_compiled is False and get("loss") is None:
        raise ConfigError(
            problem=f"The model {part.name} is not compiled, and the estimator has no loss.",
            advice="Give loss='sparse_categorical_crossentropy' or another one, or compile the"
            " model.",
        )
    shuffle = get("shuffle")
    return Candidate(
        model=part,
        batch_size=get("batchSize"),
        epochs=get("epochs"),
        seed=get("seed"),
        loss=get("loss"),
        optimizer=get("optimizer"),
        metrics=get("metrics"),
        loss_weights=get("lossWeights"),
        learning_rate=get("learningRate"),
        callbacks=pack_callbacks(get("callbacks")),
        window=WINDOW if shuffle is True else int(shuffle),
        patience=_find_patience(get("earlyStopping"), get("validation")),
        time_limit_s=get("timeLimit"),
        verbose=get("verbose"),
        is_of_classes=is_of_classes,
    )


def _find_patience(wished: Any, validation: Any) -> Mapping[str, Any] | None:
    if wished is None:
        return None
    given = wished if isinstance(wished, Mapping) else {"patience": wished}
    has_validation = validation is not None and validation != 0
    return {"monitor": "val_loss" if has_validation else "loss", **given}


def make_data_wishes(get: Any, part: ModelPart, is_of_classes: bool | None) -> DataWishes:
    """What is fed.

    Args:
        is_of_classes: What the kind of estimator says about labels; None if the loss does.
    """
    label, validation = get("labelCol"), get("validation")
    is_fraction = isinstance(validation, float)
    kinds = _find_classes(get("loss"), part, label, is_of_classes)
    named = get("outputCols") or {}
    # Of one output only its model knows the name.
    known = list(kinds) if len(kinds) > 1 else list(named)
    check_outputs(named, known, list(kinds.values()) == [True])
    return DataWishes(
        features=get("featureCols"),
        label=label,
        weight=get("weightCol") or None,
        validation=validation,
        # For the split only: candidates of different seeds can share their rows else.
        seed=get("seed") if is_fraction else 0,
        classes=get("classes"),
        standardize=get("standardize"),
        shapes=get("shapes"),
        pad=get("pad"),
        fill=get("fill"),
        is_of_classes=kinds,
    )


def _find_classes(
    loss: Any, part: ModelPart, label: Any, is_of_classes: bool | None
) -> dict[str, bool | None]:
    outputs = tuple(label) if isinstance(label, Mapping) else ("",)
    if is_of_classes is not None:
        return dict.fromkeys(outputs, is_of_classes)
    if loss is None:
        loss = find_loss(part)[1]
    if loss is None:
        return dict.fromkeys(outputs)
    if outputs == ("",) and isinstance(loss, Mapping) and "class_name" not in loss:
        values = list(loss.values())
        loss = values[0] if len(values) == 1 else None
    if isinstance(loss, (list, tuple)):
        return _find_listed(loss, find_outputs(part), outputs)
    return {
        name: _is_of_classes(one)
        for name, one in zip(outputs, split_loss(loss, outputs), strict=True)
    }


def _find_listed(
    losses: Sequence[Any], known: tuple[str, ...], outputs: tuple[str, ...]
) -> dict[str, bool | None]:
    """A list goes by the model's order of its outputs, whatever that of labelCol is."""
    found = [_is_of_classes(one) for one in losses]
    if len(set(found)) == 1:
        return dict.fromkeys(outputs, found[0])
    if set(known) != set(outputs) or len(known) != len(losses):
        return dict.fromkeys(outputs)  # the trainer has the model
    return dict(zip(known, found, strict=True))


def _is_of_classes(loss: Any) -> bool | None:
    return None if loss is None else find_kind(loss).is_of_classes


def make_run_wishes(get: Any) -> RunWishes:
    return RunWishes(
        num_workers=get("numWorkers"),
        max_restarts=get("maxRestarts"),
        run_dir=get("runDir"),
        env=get("env"),
        settings=get("settings"),
        progress=get("progress"),
        tensorboard=get("tensorboard"),
    )
