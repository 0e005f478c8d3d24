"""The runner: a function on several workers, each with its GPUs, as one training."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from spark_tensorflow_distributor import node, session_facts

#: Here, what a function returns was never limited by anything but memory.
MAX_RESULT_BYTES = 1 << 30


class MirroredStrategyRunner:
    """Runs a function that trains with TensorFlow, on Spark.

        runner = MirroredStrategyRunner(num_slots=8)
        accuracy = runner.run(train, epochs=5)

    Args:
        num_slots: How many GPUs train, or with use_gpu=False how many Spark tasks.
        local_mode: Whether to run in the driver's process. Defaults to False.
        use_gpu: Defaults to True.
        gpu_resource_name: What GPUs are called among Spark's resources. Defaults to "gpu".
        use_custom_strategy: Whether the function makes its strategy itself; otherwise it is
            called in the scope of one. Defaults to False.
    """

    def __init__(
        self,
        *,
        num_slots: int,
        local_mode: bool = False,
        use_gpu: bool = True,
        gpu_resource_name: str = "gpu",
        use_custom_strategy: bool = False,
    ) -> None:
        is_whole = hasattr(num_slots, "__index__") and not isinstance(num_slots, bool)
        if not is_whole or operator.index(num_slots) <= 0:
            raise ValueError(f"num_slots is {num_slots!r}. Expected a whole number above 0.")
        self._num_slots = operator.index(num_slots)
        self._local_mode = local_mode
        self._use_gpu = use_gpu
        self._gpu_resource_name = gpu_resource_name
        self._use_custom_strategy = use_custom_strategy

    def get_num_tasks(self) -> int:
        """How many Spark tasks train together."""
        if not self._use_gpu:
            return self._num_slots
        spark = session_facts.find_session()
        return session_facts.count_tasks(spark, self._num_slots, self._gpu_resource_name)

    def run(self, /, *args: Any, **kwargs: Any) -> Any:
        """run(train_fn, **kwargs): what the function returns in the first task.

        Args:
            train_fn: Called with kwargs in each task, or once in local mode. As it is taken
                before them, it may have an argument of any name.
        """
        if not args and "train_fn" in kwargs:
            args = (kwargs.pop("train_fn"),)
        if len(args) != 1 or not callable(args[0]):
            raise TypeError(f"run() got {args!r}. Expected one function, and its arguments by name")
        if self._local_mode:
            return self._run_here(args[0], kwargs)
        return self._run_tasks(args[0], kwargs)

    def _run_here(self, train_fn: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
        gpus: list[str] = []
        if self._use_gpu:
            spark = session_facts.find_session()
            gpus = session_facts.find_driver_gpus(spark, self._gpu_resource_name)
            if len(gpus) < self._num_slots:
                raise ValueError(
                    f"num_slots is {self._num_slots}, and the driver has {len(gpus)} GPUs."
                )
        elif self._num_slots != 1:
            raise ValueError(
                f"num_slots is {self._num_slots}. In local mode without GPUs it must be 1."
            )
        visible = ",".join(gpus[: self._num_slots])
        return node.run_here(train_fn, kwargs, visible, self._use_custom_strategy)

    def _run_tasks(self, train_fn: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
        import sparktrain

        spark = session_facts.find_session()
        session_facts.check_encryption(spark)
        num_tasks = self.get_num_tasks()
        gpus: list[int] = []
        if self._use_gpu:
            counts = range(num_tasks)
            gpus = [node.count_gpus(self._num_slots, num_tasks, index) for index in counts]
        return sparktrain.run(
            node.run_node,
            num_workers=num_tasks,
            args=(train_fn, kwargs, gpus, self._use_custom_strategy),
            spark=spark,
            # The node makes it: here it would be one with a chief.
            distribution="none",
            max_result_bytes=MAX_RESULT_BYTES,
            gpu_resource=self._gpu_resource_name,
            gpus_per_worker="auto" if self._use_gpu else 0,
        ).value
