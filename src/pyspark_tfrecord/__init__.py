"""Spark looks for packages of this name: sparktrain's data source for the format `tfrecord`."""

from sparktrain.sources.tfrecord import RecordSource as DefaultSource

__all__ = ["DefaultSource"]
