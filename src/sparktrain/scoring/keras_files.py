"""Files of Keras: what is in them, apart from when they were written, and what wrote them."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path

#: Has the date of saving: the same model, saved twice, differs in nothing else.
_DATED = "metadata.json"


def digest_keras(data: bytes) -> str:
    """The same for the same model, whenever it was saved; of any other file that of its bytes."""
    found = hashlib.sha256()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for name in sorted(set(archive.namelist()) - {_DATED}):
                found.update(f"{name}:".encode() + hashlib.sha256(archive.read(name)).digest())
    except zipfile.BadZipFile:
        return hashlib.sha256(data).hexdigest()
    return found.hexdigest()


def find_version(path: Path) -> str:
    """Of the Keras that wrote a .keras or .h5 file; each kind keeps it elsewhere."""
    if path.suffix == ".keras":
        with zipfile.ZipFile(path) as archive:
            return str(json.loads(archive.read(_DATED)).get("keras_version", "3"))
    import h5py

    with h5py.File(path) as file:
        # Keras 1 did not write it.
        found = file.attrs.get("keras_version", "1")
    return found.decode() if isinstance(found, bytes) else str(found)
