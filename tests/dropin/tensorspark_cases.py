"""Combiners of a program's own: in a module, where the parameter server finds them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorspark.core.weight_combiner import WeightCombiner


class Largest(WeightCombiner):
    """Not what anybody would train with: tells what a combiner is called with."""

    def compute(
        self, origin_weight: Any, new_weight: Any, worker_id: int = -1, name: str | None = None
    ) -> Any:
        assert worker_id in (0, 1) and name == "w:0"
        return np.maximum(origin_weight, new_weight)


class Broken(WeightCombiner):
    def compute(self, *args: Any, **kwargs: Any) -> Any:
        raise ArithmeticError("no weights today")
