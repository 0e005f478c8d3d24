"""Datasets that a program divided among its workers itself."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from sparktrain.trainer.strategy import _is_own, _is_sharded_by_hand, make_local_dataset


def take_as_own(dataset: Any, num_workers: int, caller: Any) -> Any:
    """A dataset that was sharded by hand, or is not to be sharded, as rows of this worker only.

    sparktrain's own strategy refuses such a dataset and names what its context has for it;
    programs of this package have no such context, and mean just that.

    Args:
        caller: The frame that hands it to the strategy.
    """
    if not isinstance(dataset, tf.data.Dataset):
        return dataset
    if not (_is_own(dataset) or _is_sharded_by_hand(dataset, num_workers)):
        return dataset
    if int(dataset.cardinality()) < 0 and _is_own(dataset):
        return dataset
    local = make_local_dataset(dataset)
    _forget_length(caller, local)
    return local


def _forget_length(caller: Any, local: Any) -> None:
    """Keras has counted the batches already, which become more and smaller ones: by that count,
    an epoch would end before all rows were seen. It shall read to the end instead.
    """
    owner = caller.f_locals.get("self")
    if hasattr(owner, "_num_batches") and hasattr(owner, "data_adapter"):  # of Keras 3
        owner._num_batches = None
        owner.data_adapter._dataset = local
    elif hasattr(owner, "_inferred_steps") and caller.f_locals.get("steps_per_epoch") is None:
        owner._inferred_steps = None  # of tf_keras
