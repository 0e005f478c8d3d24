"""Datasets that a program divided among its workers itself."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sparktrain.trainer.strategy import _is_own, _is_sharded_by_hand, make_local_dataset


def take_as_own(dataset: Any, num_workers: int) -> Any:
    """A dataset that was sharded by hand, or is not to be sharded, as rows of this worker only.

    sparktrain's own strategy refuses such a dataset and names what its context has for it;
    programs of this package have no such context, and mean just that.
    """
    if not isinstance(dataset, tf.data.Dataset):
        return dataset
    if _is_own(dataset):
        return dataset if int(dataset.cardinality()) < 0 else make_local_dataset(dataset)
    return make_local_dataset(dataset) if _is_sharded_by_hand(dataset, num_workers) else dataset
