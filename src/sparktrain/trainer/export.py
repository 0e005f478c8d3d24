"""Writing a finished model: complete, or not there at all."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from sparktrain.errors import ConfigError

_NAMES = {"keras": "model.keras", "saved_model": "saved_model"}


def export_model(model: Any, run_dir: Path, format: str, rank: int | None) -> str:
    """Saves the model and returns its path; a reader never sees half of it.

    Rank 0 writes. Keras 2 and plain TensorFlow talk to all workers while they save, so there
    the others save too, and drop what they wrote.
    """
    if format not in _NAMES:
        raise ConfigError(
            problem=f"ctx.export() got format={format!r}.",
            advice=f"Expected one of {', '.join(_NAMES)}.",
        )
    target = run_dir / _NAMES[format]
    if rank != 0 and (rank is None or _is_keras_3(model)):
        return str(target)
    run_dir.mkdir(parents=True, exist_ok=True)
    partial = run_dir / f"partial-{rank}-{_NAMES[format]}"
    _remove(partial)  # of an attempt that was killed
    try:
        _save(model, partial, format)
        if rank == 0:
            if target.is_dir():
                shutil.rmtree(target)
            partial.rename(target)
    finally:
        _remove(partial)
    return str(target)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _is_keras_3(model: Any) -> bool:
    return any(cls.__module__.startswith("keras.") for cls in type(model).__mro__)


def _save(model: Any, path: Path, format: str) -> None:
    if format == "keras":
        if not hasattr(model, "save"):
            raise ConfigError(
                problem=f"ctx.export() got a {type(model).__qualname__}, which has no save().",
                advice="Pass a Keras model, or format='saved_model' for a tf.Module.",
            )
        model.save(path)
    elif hasattr(model, "export"):
        model.export(str(path), verbose=False)
    else:
        import tensorflow as tf

        tf.saved_model.save(model, str(path))
