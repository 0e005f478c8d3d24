"""Which TensorFlow is installed, found without loading it."""

from __future__ import annotations

import importlib.metadata

#: Names that TensorFlow is installed under.
_NAMES = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly", "tensorflow-intel")


def find_tensorflow() -> str | None:
    """Its version; None if there is none here, as on a driver that only feeds."""
    for name in _NAMES:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None
