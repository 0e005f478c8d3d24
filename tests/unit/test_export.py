"""Writing a finished model: complete or absent, by the ranks that must, in a known format."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from sparktrain.errors import ConfigError
from sparktrain.trainer.export import export_model


class Model:
    """Saves like tf_keras; knows what it was asked to write, and may break half way."""

    def __init__(self, text: str = "weights", breaks: bool = False) -> None:
        self._text = text
        self._breaks = breaks
        self.saved: list[Path] = []
        #: What a reader would have seen in the run directory while it was being written.
        self.seen: list[list[str]] = []

    def save(self, path: Path) -> None:
        self.saved.append(Path(path))
        Path(path).write_text(self._text[:3])
        self._finish(Path(path))

    def export(self, path: str, verbose: bool = True) -> None:
        assert not verbose
        self.saved.append(Path(path))
        (Path(path) / "variables").mkdir(parents=True, exist_ok=True)
        self._finish(Path(path) / "saved_model.pb")

    def _finish(self, path: Path) -> None:
        run_dir = self.saved[-1].parent
        self.seen.append(sorted(entry.name for entry in run_dir.iterdir()))
        if self._breaks:
            raise OSError("No space left on device")
        path.write_text(self._text)


class Keras3Model(Model):
    """Known by its module."""

    __module__ = "keras.src.models.model"


class OwnKeras3Model(Keras3Model):
    """A user's subclass."""

    __module__ = "__main__"


class Lookalike(Model):
    """Of a module whose name only begins like Keras'."""

    __module__ = "keras_tools.models"


class Module:
    """A tf.Module: neither save() nor export()."""


NAMES = {"keras": "model.keras", "saved_model": "saved_model"}
FORMATS = pytest.mark.parametrize("format", NAMES)


def read(path: Path) -> str:
    return (path / "saved_model.pb" if path.is_dir() else path).read_text()


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []


@FORMATS
@pytest.mark.parametrize("cls", [Model, Keras3Model])
def test_rank_0_writes_the_model_under_its_name_alone(
    tmp_path: Path, cls: type[Model], format: str
) -> None:
    run_dir = tmp_path / "not" / "there yet"
    path = export_model(cls(), run_dir, format, 0)
    assert path == str(run_dir / NAMES[format])
    assert read(Path(path)) == "weights"
    assert names(run_dir) == [NAMES[format]]


@FORMATS
def test_a_reader_never_sees_the_model_before_it_is_complete(tmp_path: Path, format: str) -> None:
    model = Model()
    export_model(model, tmp_path, format, 0)
    assert len(model.seen) == 1
    assert NAMES[format] not in model.seen[0]
    # Keras takes the format from the ending, and a rename is one step within a folder only.
    assert model.saved[0].parent == tmp_path
    assert model.saved[0].suffix == Path(NAMES[format]).suffix


@FORMATS
def test_a_save_that_breaks_leaves_nothing_and_says_why(tmp_path: Path, format: str) -> None:
    with pytest.raises(OSError, match="No space left on device"):
        export_model(Model(breaks=True), tmp_path, format, 0)
    assert names(tmp_path) == []


@FORMATS
def test_a_save_that_breaks_leaves_the_earlier_model_as_it_was(tmp_path: Path, format: str) -> None:
    path = Path(export_model(Model("first"), tmp_path, format, 0))
    with pytest.raises(OSError, match="No space"):
        export_model(Model("second", breaks=True), tmp_path, format, 0)
    assert read(path) == "first"
    assert names(tmp_path) == [NAMES[format]]


@FORMATS
def test_a_later_export_takes_the_place_of_an_earlier_one(tmp_path: Path, format: str) -> None:
    path = Path(export_model(Model("first"), tmp_path, format, 0))
    if path.is_dir():
        (path / "of the first").write_text("x")
    export_model(Model("second"), tmp_path, format, 0)
    assert read(path) == "second"
    assert names(tmp_path) == [NAMES[format]]
    assert not (path.is_dir() and (path / "of the first").exists())


def test_what_a_killed_export_left_does_not_get_into_the_model(tmp_path: Path) -> None:
    killed = tmp_path / "partial-0-saved_model"
    killed.mkdir()
    (killed / "of the killed one").write_text("x")
    path = Path(export_model(Model(), tmp_path, "saved_model", 0))
    assert names(path) == ["saved_model.pb", "variables"]
    assert names(tmp_path) == ["saved_model"]


@FORMATS
@pytest.mark.parametrize("cls", [Keras3Model, OwnKeras3Model])
def test_other_ranks_of_keras_3_and_the_evaluator_write_nothing(
    tmp_path: Path, cls: type[Model], format: str
) -> None:
    model = cls()
    for rank in (1, 2, None):
        run_dir = tmp_path / "run"
        assert export_model(model, run_dir, format, rank) == str(run_dir / NAMES[format])
        assert not run_dir.exists()
    assert model.saved == []


@FORMATS
@pytest.mark.parametrize("cls", [Model, Lookalike])
def test_other_ranks_of_keras_2_save_too_and_drop_it(
    tmp_path: Path, cls: type[Model], format: str
) -> None:
    first, second, watcher = cls("of rank 0"), cls("of rank 1"), cls("of the evaluator")
    path = export_model(first, tmp_path, format, 0)
    assert export_model(second, tmp_path, format, 1) == path
    assert export_model(watcher, tmp_path, format, None) == path
    assert (len(first.saved), len(second.saved), len(watcher.saved)) == (1, 1, 0)
    assert first.saved != second.saved  # they may write at the same time
    assert read(Path(path)) == "of rank 0"
    assert names(tmp_path) == [NAMES[format]]


@FORMATS
def test_another_rank_whose_save_breaks_harms_nobody(tmp_path: Path, format: str) -> None:
    path = Path(export_model(Model("of rank 0"), tmp_path, format, 0))
    with pytest.raises(OSError, match="No space"):
        export_model(Model(breaks=True), tmp_path, format, 1)
    assert read(path) == "of rank 0"
    assert names(tmp_path) == [NAMES[format]]


@pytest.mark.parametrize("rank", [0, 1, None])
@pytest.mark.parametrize("format", ["h5", "", "KERAS", None])
def test_an_unknown_format_is_refused_on_every_rank(
    tmp_path: Path, format: Any, rank: int | None
) -> None:
    model = Model()
    with pytest.raises(ConfigError) as caught:
        export_model(model, tmp_path / "run", format, rank)
    expected = f"ctx.export() got format={format!r}. Expected one of keras, saved_model."
    assert str(caught.value) == expected
    assert model.saved == []
    assert not (tmp_path / "run").exists()


def test_what_has_no_save_is_refused_with_the_format_to_use(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        export_model(Module(), tmp_path, "keras", 0)
    assert "ctx.export() got a Module, which has no save()." in str(caught.value)
    assert "format='saved_model'" in str(caught.value)
    assert names(tmp_path) == []


def test_a_module_is_saved_by_tensorflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save(module: Any, path: str) -> None:
        Path(path).mkdir()
        (Path(path) / "saved_model.pb").write_text(type(module).__name__)

    stand_in = types.SimpleNamespace(saved_model=types.SimpleNamespace(save=save))
    monkeypatch.setitem(sys.modules, "tensorflow", stand_in)
    path = Path(export_model(Module(), tmp_path, "saved_model", 0))
    assert read(path) == "Module"
    assert names(tmp_path) == ["saved_model"]
