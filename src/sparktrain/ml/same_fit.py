"""Which fit a run directory belongs to: the same one, called again, goes on where it was."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from sparktrain.fit_spec import Candidate, Moments
from sparktrain.ml.prepare import Prepared
from sparktrain.scoring.keras_files import digest_keras

#: Says which fit a run directory belongs to, and by which moments its weights were trained.
FIT_FILE = "fit.json"


def take_up(folder: Path, prepared: Prepared, candidates: Sequence[Candidate]) -> Prepared:
    """What is to be trained in the run directory; what another fit has left there is taken away.

    The same fit goes on with the moments it began with: weights belong to them, and those of the
    same rows, merged in another order, differ in their last digits.
    """
    print_ = fingerprint(prepared, candidates)
    path = folder / FIT_FILE
    kept: Mapping[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        kept = json.loads(path.read_text())
    if kept and kept.get("fit") != print_:
        for fit in (folder / "checkpoints").glob("fit-*"):
            shutil.rmtree(fit, ignore_errors=True)
        for name in ("metrics.jsonl", "result.json"):
            with contextlib.suppress(OSError):
                (folder / name).unlink(missing_ok=True)
    elif kept and any((folder / "checkpoints").glob("fit-*/*")):
        moments = {
            name: Moments(tuple(one["mean"]), tuple(one["variance"]))
            for name, one in kept["moments"].items()
        }
        prepared = replace(prepared, spec=replace(prepared.spec, moments=moments))
    with contextlib.suppress(OSError):  # run() says what is wrong with the folder
        folder.mkdir(parents=True, exist_ok=True)
        found = {name: asdict(one) for name, one in prepared.spec.moments.items()}
        path.write_text(json.dumps({"fit": print_, "moments": found}) + "\n")
    return prepared


def fingerprint(prepared: Prepared, candidates: Sequence[Candidate]) -> str:
    """The same for the same fit, so that it is gone on with; more epochs are the same fit."""
    # Functions are known by their name: pickling does not give the same bytes every time.
    kept = [
        replace(
            one,
            model=replace(one.model, function=b""),
            loss=identify(one.loss),
            optimizer=identify(one.optimizer),
            metrics=identify(one.metrics),
            learning_rate=identify(one.learning_rate),
            callbacks=b"",
            epochs=1,
            time_limit_s=None,
            verbose=0,
        )
        for one in candidates
    ]
    files = [digest_keras(one.model.file) for one in candidates]
    sizes = {name: len(one.mean) for name, one in prepared.spec.moments.items()}
    spec = replace(prepared.spec, moments={})
    text = f"{spec}{sizes}{describe(prepared.wishes)}{kept}{files}"
    return hashlib.sha256(text.encode()).hexdigest()


#: How it is pickled.
_BYTES = ("pickled", "is_whole")


def identify(value: Any) -> Any:
    """The same for the same loss, metric or optimizer, also where it is made and pickled anew."""
    if isinstance(value, (list, tuple)):
        return [identify(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    known = {name: identify(one) for name, one in value.items() if name not in _BYTES}
    config = known.get("config")
    if isinstance(config, Mapping):
        kind = str(value.get("class_name") or value.get("name"))
        if _is_automatic(config.get("name"), kind):
            known["config"] = {key: one for key, one in config.items() if key != "name"}
    return known


def _is_automatic(name: Any, kind: str) -> bool:
    """Whether Keras made the name from that of the class: it counts them, as in auc_1."""
    plain = re.sub(r"_\d+$", "", str(name)).replace("_", "")
    return plain.lower() == re.split(r"[.>]", kind)[-1].replace("_", "").lower()


def describe(wishes: Mapping[str, Any]) -> str:
    """The same for equal values, however the user wrote them; a DataFrame is known as one."""

    def show(value: Any) -> Any:
        if hasattr(value, "mapInArrow"):
            return "a DataFrame"
        return value.item() if getattr(value, "shape", None) == () else repr(value)

    return json.dumps(wishes, sort_keys=True, default=show)
