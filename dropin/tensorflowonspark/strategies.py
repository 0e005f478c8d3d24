"""Lets programs that make a MultiWorkerMirroredStrategy train with Keras 3.

TensorFlow's own fails there; sparktrain's, which is a subclass of it, does not. It takes its
place when the program imports TensorFlow, and not before: what a program sets first, such as
TF_USE_LEGACY_KERAS, must still count.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def install(on_made: Callable[[Any], None]) -> None:
    """To be called before the program's function.

    Args:
        on_made: Called with the strategy that the program makes.
    """
    if "tensorflow" in sys.modules:
        _replace(sys.modules["tensorflow"], on_made)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(on_made))


class _Finder(importlib.abc.MetaPathFinder):
    """Sees TensorFlow being imported, once."""

    def __init__(self, on_made: Callable[[Any], None]) -> None:
        self._on_made = on_made

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        loader: Any = spec.loader if spec is not None else None
        if loader is None:
            return spec
        load = loader.exec_module

        def load_and_replace(module: ModuleType) -> None:
            load(module)
            _replace(module, self._on_made)

        loader.exec_module = load_and_replace
        return spec


def _replace(tensorflow: Any, on_made: Callable[[Any], None]) -> None:
    from sparktrain.trainer.strategy import KerasMultiWorkerStrategy
    from tensorflowonspark.own_datasets import take_as_own

    class MultiWorkerMirroredStrategy(KerasMultiWorkerStrategy):
        """As TensorFlow's own is called, whose arguments are understood."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__()
            on_made(self)

        def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
            dataset = take_as_own(dataset, self.extended._num_workers, sys._getframe(1))
            return super().experimental_distribute_dataset(dataset, options)

    tensorflow.distribute.MultiWorkerMirroredStrategy = MultiWorkerMirroredStrategy
    tensorflow.distribute.experimental.MultiWorkerMirroredStrategy = MultiWorkerMirroredStrategy
