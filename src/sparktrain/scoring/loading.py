"""Loads models in a Spark Python worker: each one once, for all tasks the worker will run."""

from __future__ import annotations

import contextlib
import gc
import io
import sys
import tempfile
import threading
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from sparktrain.errors import ModelError
from sparktrain.scoring.keras_files import find_version
from sparktrain.scoring.own_classes import load_with
from sparktrain.scoring.scorer import KerasScorer, Scorer, SignatureScorer
from sparktrain.scoring.spec import KERAS, SAVED_MODEL, ModelSource

#: How many models a worker keeps: a worker that serves many must not grow for ever.
MAX_LOADED = 4

_loaded: OrderedDict[tuple[str, ...], Scorer] = OrderedDict()
_lock = threading.Lock()


def load(source: ModelSource, device: str = "") -> Scorer:
    """The model, ready to be called; raises ModelError.

    Args:
        device: TensorFlow's name of the device it shall live on; empty for TensorFlow's choice.
    """
    key = (source.key, source.kind, source.signature, *source.layers, device)
    with _lock:
        if key in _loaded:
            _loaded.move_to_end(key)
            return _loaded[key]
        with _naming(source):
            _extend_path(source.python_path)
            scorer = _load(source, device)
        _loaded[key] = scorer
        while len(_loaded) > MAX_LOADED:
            _loaded.popitem(last=False)
        _settle()
        return scorer


def _settle() -> None:
    """Takes what is loaded out of the garbage collector's sight.

    Spark's worker collects garbage after every task. Going through the objects of TensorFlow
    each time takes longer (0.2 s) than scoring the rows of a small task.
    """
    gc.unfreeze()  # a model that was given up goes with the next collection
    gc.collect()
    gc.freeze()


def _load(source: ModelSource, device: str) -> Scorer:
    import tensorflow as tf

    with _local_copy(source) as path, tf.device(device or None):
        if source.kind == SAVED_MODEL:
            return SignatureScorer(tf.saved_model.load(str(path)), source.signature, device)
        if source.kind == KERAS:
            saving = _find_keras(path).saving
            model = load_with(saving, str(path), source.classes, compile=False)
        else:
            import cloudpickle

            # Pickled by this job's own driver, as every function of Spark is.
            model = cloudpickle.loads(source.build)()
            model.load_weights(str(path))
        return KerasScorer(model, source.layers, device)


def _extend_path(folders: tuple[str, ...]) -> None:
    """Behind what is there: installed packages stay what they are."""
    sys.path += [one for one in folders if one not in sys.path and Path(one).exists()]


def _find_keras(path: Path) -> Any:
    """The Keras that wrote the file: a file of Keras 2 is read by tf_keras."""
    version = find_version(path)
    if int(version.split(".")[0]) < 3:
        try:
            import tf_keras
        except ImportError as error:
            # Keras 3 reads many of the older kind.
            if path.suffix == ".keras":
                raise ModelError(
                    model=path.name,
                    problem=f"It was written by Keras {version}.",
                    advice="Install tf-keras for the Python of every executor.",
                ) from error
        else:
            return tf_keras
    import keras

    return keras


@contextlib.contextmanager
def _local_copy(source: ModelSource) -> Iterator[Path]:
    """The model's files on this host, for as long as loading takes."""
    if not source.packed and "://" not in source.path:
        yield Path(source.path)
        return
    with tempfile.TemporaryDirectory(prefix="sparktrain-model-") as folder:
        if not source.packed:
            yield _download(source.path, Path(folder))
        elif source.kind == SAVED_MODEL:
            with zipfile.ZipFile(io.BytesIO(source.packed)) as archive:
                archive.extractall(folder)
            yield Path(folder)
        else:
            # Keras tells formats by the end of the name.
            path = Path(folder, PurePosixPath(source.name).name or "model.keras")
            path.write_bytes(source.packed)
            yield path


def _download(url: str, folder: Path) -> Path:
    from sparktrain.data.storage import open_store

    store, path = open_store(url, {})
    target = folder / PurePosixPath(path).name
    store.get(path, str(target), recursive=store.isdir(path))
    return target


@contextlib.contextmanager
def _naming(source: ModelSource) -> Iterator[None]:
    try:
        yield
    except ModelError:
        raise
    except Exception as error:  # every format, store and custom layer has errors of its own
        raise ModelError(
            model=source.name,
            problem=f"It cannot be loaded: {type(error).__name__}: {str(error).rstrip('.')}.",
            advice="Check that it was written by a version of Keras or TensorFlow that is not"
            " newer than the executors', that every executor can read it, and that classes of"
            " your own are registered where it is loaded; or give the weights with"
            " build=function.",
        ) from error
