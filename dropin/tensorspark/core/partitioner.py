"""Spreads rows over partitions, for rdd.partitionBy(number, partitioner)."""

from __future__ import annotations

import random
from typing import Any


class RandomPartitioner:
    """A random partition for each key.

    Args:
        num_partition: How many partitions there are.
    """

    def __init__(self, num_partition: int) -> None:
        self.num_partition = num_partition

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RandomPartitioner) and self.num_partition == other.num_partition

    def __hash__(self) -> int:
        return hash(self.num_partition)

    def __call__(self, k: Any) -> int:
        return random.randrange(self.num_partition)
