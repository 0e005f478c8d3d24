"""The memory of this node's GPUs, where it takes a part only."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def limit_memory(limit_mb: int) -> None:
    """Has TensorFlow take so much of each device, and no more. Before it computes anything."""
    for gpu in tf.config.list_physical_devices("GPU"):
        part = tf.config.LogicalDeviceConfiguration(memory_limit=limit_mb)
        tf.config.set_logical_device_configuration(gpu, [part])


def make_server_config(num_gpus: int, limit_mb: int) -> Any:
    """The same for a server of TensorFlow, which has a configuration of its own."""
    config = tf.compat.v1.ConfigProto()
    for _ in range(num_gpus if limit_mb else 0):
        config.gpu_options.experimental.virtual_devices.add(memory_limit_mb=[limit_mb])
    return config
