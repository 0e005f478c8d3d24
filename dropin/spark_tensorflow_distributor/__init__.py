"""Drop-in for spark-tensorflow-distributor, on sparktrain."""

from spark_tensorflow_distributor.mirrored_strategy_runner import MirroredStrategyRunner

__all__ = ["MirroredStrategyRunner"]
