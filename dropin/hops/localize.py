"""Copies of the project's files on this machine, and modules that can be imported from them.

A project may be a folder of this machine: then a file may be where its copy would be.
"""

from __future__ import annotations

import importlib
import posixpath
import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from hops import place, stores

#: Where add_module() puts what it imports, in the working directory.
MODULES = "localized_deps"


def copy_to_local(found: str, folder: Path, overwrite: bool = False) -> Path:
    """A file or a folder, in a folder of this machine; returns where it is.

    What is there with the same sizes is left alone, and so is what is the source itself. What was
    there before goes away when all of the new is there, and not earlier.

    Args:
        found: The full path of the source.
    """
    from sparktrain.data.storage import is_local

    filesystem, name = stores.open_path(found)
    if not filesystem.exists(name):
        raise FileNotFoundError(f"{found} does not exist")
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is no folder of this machine")
    target = folder / posixpath.basename(name.rstrip("/"))
    if is_local(filesystem):
        source, copied = Path(name).resolve(), target.resolve()
        if source == copied:
            return target
        if source.is_relative_to(copied) or copied.is_relative_to(source):
            raise OSError(
                f"{found} cannot be copied to {target}: one is in the other, and would be lost or"
                " doubled. Give another folder as local_path."
            )
    if target.exists() and not overwrite:
        here, kept = stores.open_path(str(target))
        if stores.find_sizes(filesystem, name) == stores.find_sizes(here, kept):
            return target
    with _replacing(target) as fresh:
        stores.copy(filesystem, name, *stores.open_path(str(fresh)))
    return target


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """A path beside the target to write to, which takes its place at the end."""
    mark = uuid.uuid4().hex[:8]
    fresh, old = (target.parent / f".{mark}.{end}" for end in ("new", "old"))
    try:
        yield fresh
        if target.is_dir() or target.is_symlink() or (target.exists() and fresh.is_dir()):
            target.rename(old)
        fresh.replace(target)
    except BaseException:
        if old.exists() and not target.exists():
            old.rename(target)
        raise
    finally:
        for one in (fresh, old):
            _remove(one)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def add_module(found: str) -> Path:
    """Makes a .py, .ipynb, .zip or .egg importable; returns its path on this machine.

    Args:
        found: Its full path; a file of this machine is not copied.
    """
    suffix = posixpath.splitext(found)[1]
    if suffix not in (".py", ".ipynb", ".zip", ".egg"):
        raise ValueError(f"add_module() got {found!r}; expected a .py, .ipynb, .zip or .egg")
    local = place.find_local(found)
    path = Path(local) if local is not None else copy_to_local(found, _find_modules(), True)
    if not path.is_file():
        raise FileNotFoundError(f"add_module() got {found!r}, which is no file")
    if suffix == ".ipynb":
        path = convert_notebook(path, _find_modules())
    entry = str(path if suffix in (".zip", ".egg") else path.parent)
    if entry not in sys.path:
        sys.path.append(entry)
    importlib.invalidate_caches()
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) == str(path):
        importlib.reload(known)  # it may have changed
    return path


def _find_modules() -> Path:
    folder = Path.cwd() / MODULES
    folder.mkdir(exist_ok=True)
    return folder


def convert_notebook(path: Path, folder: Path) -> Path:
    """The cells of a notebook as a module in a folder."""
    try:
        nbconvert: ModuleType = importlib.import_module("nbconvert")
    except ImportError as error:
        raise ImportError(
            f"add_module() got the notebook {path}, and nbconvert, which makes a module of it, is"
            " not installed. Install nbconvert here, or save the notebook as a .py file."
        ) from error
    body, _ = nbconvert.PythonExporter().from_filename(str(path))
    target = folder / f"{path.stem}.py"
    with _replacing(target) as fresh:
        fresh.write_text(body)
    return target
