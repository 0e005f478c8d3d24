"""Finds the model that scoring was given, and how it gets to the workers."""

from __future__ import annotations

import hashlib
import io
import os
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from sparktrain.data.storage import is_local, open_store
from sparktrain.driver.function import dump, find_own_path
from sparktrain.errors import ConfigError, ModelError
from sparktrain.scoring.keras_files import digest_keras
from sparktrain.scoring.own_classes import is_keras, pack_classes
from sparktrain.scoring.spec import KERAS, SAVED_MODEL, WEIGHTS, ModelSource

#: Models up to this size travel with the job, so that executors need no shared folder.
PACKED_BYTES = 32 * 1024 * 1024
_WEIGHTS_END = ".weights.h5"
_ADVICE = (
    "Expected a .keras or .h5 file, a SavedModel folder, a .weights.h5 file with build=function,"
    " a Keras model, or a model of sparktrain."
)


def find_source(
    model: Any, build: Callable[[], Any] | None = None, signature: str = "serving_default"
) -> ModelSource:
    """Checks that the model is there and what it is; raises ModelError."""
    own = getattr(model, "source", None)
    if isinstance(own, ModelSource):  # a model of our own estimator
        source = own
    elif isinstance(model, (str, os.PathLike)):
        source = _find_path(os.fspath(model), build)
    elif is_keras(model) and hasattr(model, "save") and hasattr(model, "layers"):
        source = pack_keras(model)
    else:
        raise ModelError(model=type(model).__name__, problem="It is no model.", advice=_ADVICE)
    if (build is not None) != (source.kind == WEIGHTS):
        raise ModelError(
            model=source.name,
            problem="build= is given, but it is no file of weights."
            if build is not None
            else "It is a file of weights, which does not say what they are for.",
            advice=f"Expected build=function for files that end with {_WEIGHTS_END}, only.",
        )
    if build is not None:
        source = _with_build(source, build)
    if not isinstance(signature, str) or not signature:
        raise ConfigError(
            problem=f"predict() got signature={signature!r}.", advice="Expected its name."
        )
    return replace(source, signature=signature, python_path=find_own_path(sys.path))


def pack_keras(model: Any) -> ModelSource:
    """A model of this process, as a file of Keras."""
    with tempfile.TemporaryDirectory(prefix="sparktrain-model-") as folder:
        path = Path(folder, "model.keras")
        model.save(path)
        data = path.read_bytes()
    classes = pack_classes(model)
    key = digest_keras(data) + (_digest(classes) if classes else "")
    return ModelSource(KERAS, f"{model.name}.keras", key, packed=data, classes=classes)


def _with_build(source: ModelSource, build: Callable[[], Any]) -> ModelSource:
    if not callable(build):
        raise ConfigError(
            problem=f"predict() got build={build!r}.",
            advice="Expected a function without arguments that returns the model.",
        )
    pickled = dump(build)
    return replace(source, build=pickled, key=source.key + _digest(pickled))


def _find_path(path: str, build: Any) -> ModelSource:
    store, inner = open_store(path, {})
    kind = ""
    try:
        if store.isdir(inner):
            if store.exists(f"{inner.rstrip('/')}/saved_model.pb"):
                kind = SAVED_MODEL
        elif store.exists(inner):
            name = PurePosixPath(inner).name
            is_keras = name.endswith((".keras", ".h5", ".hdf5"))
            kind = WEIGHTS if name.endswith(_WEIGHTS_END) else KERAS if is_keras else ""
        else:
            raise ModelError(model=path, problem="There is no such file or folder.", advice=_ADVICE)
        if not kind:
            raise ModelError(
                model=path, problem="It is not in a form that is read.", advice=_ADVICE
            )
        files = (
            store.find(inner, detail=True) if kind == SAVED_MODEL else {inner: store.info(inner)}
        )
        size = sum(int(info.get("size") or 0) for info in files.values())
        if size <= PACKED_BYTES:
            data = _zip(store, inner, sorted(files)) if kind == SAVED_MODEL else store.cat(inner)
            _check_file(path, kind, data)
            return ModelSource(kind, path, _digest(data), packed=data)
    except ModelError:
        raise
    except Exception as error:  # every store has errors of its own
        raise ModelError(
            model=path,
            problem=f"It cannot be read: {type(error).__name__}: {error}.",
            advice=_ADVICE,
        ) from error
    where = str(Path(inner).absolute()) if is_local(store) else path
    facts = [(name, str(sorted(info.items(), key=str))) for name, info in sorted(files.items())]
    return ModelSource(kind, path, _digest(repr((where, facts)).encode()), path=where)


def _check_file(path: str, kind: str, data: bytes) -> None:
    """A broken .keras file is refused here; what is inside is found out by loading it."""
    if kind == KERAS and path.endswith(".keras") and not zipfile.is_zipfile(io.BytesIO(data)):
        raise ModelError(
            model=path,
            problem=f"It is no file of Keras: it is {len(data)} bytes that are no zip archive.",
            advice="It may be cut off, or renamed; save the model again.",
        )


def _zip(store: Any, folder: str, files: list[str]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in files:
            inner = PurePosixPath(name).relative_to(PurePosixPath(folder))
            # With a fixed date: the same model shall have the same bytes.
            archive.writestr(zipfile.ZipInfo(str(inner)), store.cat(name))
    return packed.getvalue()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
