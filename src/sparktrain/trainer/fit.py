"""The training function of an estimator: candidates one after the other, on the same rows.

Imports nothing of TensorFlow before it runs: the driver names this function, and has none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparktrain.fit_spec import DONE_FOLDER, Candidate, DataSpec, FitSpec, Fitted

if TYPE_CHECKING:
    from sparktrain.trainer.context import Context

SUMMARY_WIDTH = 90


def fit_candidates(context: Context) -> list[Fitted] | None:
    """Trains what ctx.args, a FitSpec, says; the models are rank 0's to return."""
    spec: FitSpec = context.args
    is_single = len(spec.candidates) == 1
    if not is_single:
        # Tells the driver that it sees this folder, and that what is not in it is not done.
        Path(context.run_dir, DONE_FOLDER).mkdir(parents=True, exist_ok=True)
    found: list[Fitted] = []
    for number, candidate in enumerate(spec.candidates):
        folder = Path(context.run_dir, DONE_FOLDER, str(number))
        # Of an attempt before this one: it is done, and its checkpoint is not the next one's.
        fitted = None if is_single else read_fitted(folder)
        if fitted is None:
            fitted = _fit(context, spec.data, candidate, is_single)
            if fitted is not None and not is_single:
                write_fitted(folder, fitted)
        else:
            context.num_fits += 1
        if context.is_chief and fitted is not None:
            found.append(fitted)
    return found if context.is_chief else None


def _fit(context: Context, data: DataSpec, candidate: Candidate, is_single: bool) -> Fitted | None:
    import keras

    from sparktrain.trainer.fit_columns import make_fit_dataset
    from sparktrain.trainer.fit_errors import explaining
    from sparktrain.trainer.fit_plan import make_fit_plan

    # Nothing of the candidate before: neither names of layers, nor a policy of types, nor seeds.
    keras.backend.clear_session()
    keras.utils.set_random_seed(candidate.seed)
    with context.strategy.scope():
        plan = make_fit_plan(context, data, candidate)
    tables = ["train", *(["validation"] if data.has_validation else [])]
    datasets = [
        make_fit_dataset(context, table, data, candidate, plan.inputs, plan.labels, plan.is_named)
        for table in tables
    ]
    stopped: dict[str, str] = {}
    callbacks = _make_callbacks(context, data, candidate, stopped)
    with explaining(context, plan.labels):
        plan.model.fit(
            datasets[0],
            epochs=candidate.epochs,
            validation_data=datasets[1] if data.has_validation else None,
            callbacks=callbacks,
            verbose=candidate.verbose if context.is_chief else 0,
        )
    if stopped and context.is_chief:
        print(f"sparktrain: training stopped early ({stopped['why']})")
    return _pack(context, plan, stopped.get("why", ""), is_single)


def _make_callbacks(
    context: Context, data: DataSpec, candidate: Candidate, stopped: dict[str, str]
) -> list[Any]:
    import cloudpickle

    from sparktrain.trainer.fit_guards import (
        make_early_stopping,
        make_nan_guard,
        make_time_guard,
    )

    own: list[Any] = []
    if candidate.patience is not None:
        fit = context.num_fits + 1
        own.append(make_early_stopping(context, candidate.patience, fit, stopped))
    if candidate.time_limit_s is not None:
        own.append(make_time_guard(context, candidate.time_limit_s, stopped))
    if candidate.callbacks:
        given = cloudpickle.loads(candidate.callbacks)
        given = given() if callable(given) else given
        own += list(given) if isinstance(given, Sequence) else [given]
    return [make_nan_guard(context, data), *context.callbacks(*own)]


def _pack(context: Context, plan: Any, why: str, is_single: bool) -> Fitted | None:
    if is_single:
        path = Path(context.export(plan.model))
        if not context.is_chief:
            return None
        packed = path.read_bytes()
    else:
        if not context.is_chief:
            return None
        from sparktrain.trainer.export import export_model

        folder = Path(context.run_dir, DONE_FOLDER, "writing")
        path = Path(export_model(plan.model, folder, "keras", 0))
        packed = path.read_bytes()
        path.unlink()
    from sparktrain.scoring.own_classes import pack_classes

    classes = pack_classes(plan.model, is_trained=True)
    return Fitted(packed, plan.contract, _summarise(plan.model), why, classes=classes)


def _summarise(model: Any) -> str:
    lines: list[str] = []
    # Keras asks the terminal for its width, which a node does not have.
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(SUMMARY_WIDTH)
    try:
        model.summary(print_fn=lambda line, **_: lines.append(line), line_length=SUMMARY_WIDTH)
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
    return "\n".join(lines)


def write_fitted(folder: Path, fitted: Fitted) -> None:
    """Keeps a candidate that is done: complete, or not there at all."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.keras").write_bytes(fitted.model)
    (folder / "classes.pickle").write_bytes(fitted.classes)
    rest = {"contract": fitted.contract, "summary": fitted.summary, "stopped": fitted.stopped}
    partial = folder / "fitted.json.partial"
    partial.write_text(json.dumps(rest))
    partial.replace(folder / "fitted.json")


def read_fitted(folder: Path) -> Fitted | None:
    """What write_fitted() kept; None if it did not come to its end."""
    try:
        rest = json.loads((folder / "fitted.json").read_text())
        model, classes = (folder / name for name in ("model.keras", "classes.pickle"))
        return Fitted(model.read_bytes(), **rest, classes=classes.read_bytes())
    except FileNotFoundError:
        return None
