"""In which order a pass reads its files. Same seed and pass, same order, on any machine."""

from __future__ import annotations

import numpy as np

#: Keeps this draw apart from others made with the same seed and pass.
_USE = 2


def file_order(num: int, seed: int, pass_number: int, shuffle: bool) -> list[int]:
    """Positions of `num` files in the order of one pass; as listed without shuffle."""
    if not shuffle:
        return list(range(num))
    rng = np.random.default_rng([seed, pass_number, _USE])
    return [int(position) for position in rng.permutation(num)]
