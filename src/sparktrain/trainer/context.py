"""What the user's function gets: who it is, the strategy, and where to write."""

from __future__ import annotations

import contextlib
import operator
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparktrain.errors import ConfigError
from sparktrain.spec import CHIEF, NodeSpec

if TYPE_CHECKING:
    from sparktrain.trainer.link import AgentLink


class Context:
    """The node's view of its run.

        def train(ctx):
            with ctx.strategy.scope():
                model = build(); model.compile(...)
            model.fit(dataset, epochs=5, callbacks=ctx.callbacks())
            ctx.export(model)

    Attributes:
        role: "chief", "worker" or "evaluator".
        index: The position within the role.
        rank: The position among the nodes that train, the chief being 0; None on an evaluator.
        num_workers: How many nodes train: the chief and the workers.
        is_chief: Whether this node writes what only one may write.
        cluster_spec: role -> addresses of all nodes.
        args: What was given to run(args=...).
        run_dir, checkpoint_dir, log_dir: Where the run, its checkpoints and its TensorBoard
            events are.
    """

    def __init__(
        self,
        *,
        node: NodeSpec,
        num_workers: int,
        cluster_spec: Mapping[str, list[str]],
        run_id: str,
        run_dir: str,
        link: AgentLink,
        distributed: bool,
    ) -> None:
        self.role = node.role
        self.index = node.index
        self.rank = node.rank
        self.num_workers = num_workers
        self.is_chief = node.role == CHIEF
        self.cluster_spec = dict(cluster_spec)
        self.args: Any = None
        self.run_id = run_id
        self.run_dir = run_dir
        self.checkpoint_dir = str(Path(run_dir) / "checkpoints")
        self.log_dir = str(Path(run_dir) / "tensorboard")
        #: How often callbacks() was called.
        self.num_fits = 0
        #: Rows and steps of finished epochs, over all calls of fit.
        self.rows_done = 0
        self.steps_done = 0
        self._link = link
        self._distributed = distributed
        self._strategy: Any = None

    def prepare(self) -> None:
        """Makes the strategy: TensorFlow wants it before anything else is computed."""
        if not self._distributed:
            return
        backend = os.environ.get("KERAS_BACKEND", "tensorflow")
        if backend != "tensorflow":
            raise ConfigError(
                problem=f"KERAS_BACKEND is {backend!r} and the run has {self.num_workers} workers.",
                advice="Several workers train together with the tensorflow backend only. Set"
                " distribution='none' if they shall not.",
            )
        from sparktrain.trainer.keras_versions import check_version
        from sparktrain.trainer.strategy import KerasMultiWorkerStrategy

        self._strategy = KerasMultiWorkerStrategy()
        keras = sys.modules.get("keras")  # absent where the user asked for tf_keras
        message = check_version(keras.__version__) if keras is not None else None
        if message is not None:
            warnings.warn(message, stacklevel=2)

    @property
    def strategy(self) -> Any:
        """The tf.distribute strategy of this run; with one worker TensorFlow's default one."""
        if self._strategy is None:
            import tensorflow as tf

            self._strategy = tf.distribute.get_strategy()
        return self._strategy

    @property
    def should_stop(self) -> bool:
        """True once the driver wants the function to end: at timeout_s or Ctrl-C."""
        return self._link.stop.is_set()

    def local_dataset(self, dataset: Any) -> Any:
        """Marks a batched tf.data.Dataset as rows that only this worker has.

        Without it, fit takes the dataset of every worker for the same one and gives each its
        part. The batch size is the global one either way; workers may have different numbers
        of rows.
        """
        if not self._distributed:
            return dataset
        from sparktrain.trainer.strategy import make_local_dataset

        return make_local_dataset(dataset)

    def callbacks(self, *own: Any, save_freq: Any = "epoch") -> list[Any]:
        """Keras callbacks: resume, progress, TensorBoard; then your own. One call for each fit.

        Args:
            own: Your callbacks. Those that write files (ModelCheckpoint, CSVLogger,
                TensorBoard) are kept on the chief only: several workers must not write one file.
            save_freq: "epoch", or a number of steps between checkpoints. Defaults to "epoch".
        """
        from sparktrain.trainer.callbacks import make_callbacks

        return make_callbacks(self, own, save_freq)

    def report(self, **metrics: float) -> None:
        """Adds a row to result.metrics; a row with an `epoch` is merged with others of that epoch.

        Counts on the chief and the evaluator only: workers run the same code as the chief, and
        their rows would be there twice.
        """
        values = {}
        for name, value in metrics.items():
            try:
                values[name] = float(value)
            except (TypeError, ValueError) as error:
                raise ConfigError(
                    problem=f"ctx.report() got {name}={value!r} of type {type(value).__name__}.",
                    advice="Expected numbers only.",
                ) from error
        if "epoch" in values:
            if not values["epoch"].is_integer():
                raise ConfigError(
                    problem=f"ctx.report() got epoch={values['epoch']}.",
                    advice="Expected a whole number.",
                )
            values.update({k: int(values[k]) for k in ("fit", "epoch") if k in values})
        if self.rank:
            return
        self._link.send({"kind": "report", "metrics": values})

    def export(self, model: Any, *, format: str = "keras") -> str:
        """Saves the finished model below the run directory; result.model_path is its path.

        To be called on every node: only the chief writes, the others just get the path.

        Args:
            model: A Keras model, or any tf.Module with format="saved_model".
            format: "keras" for one file that Keras loads, "saved_model" for serving.
        """
        from sparktrain.trainer.export import export_model

        path = export_model(model, Path(self.run_dir), format, self.rank)
        if self.is_chief:
            self._link.send({"kind": "export", "path": path})
        return path

    def send_progress(self, **values: Any) -> None:
        """Tells the driver where this node is; used by the progress callback."""
        counts = ("epoch", "epochs", "step", "steps", "rows", "total_steps")
        frame: dict[str, Any] = {name: _count(values.get(name)) for name in counts}
        frame.update({name: values.get(name) for name in ("examples_per_s", "steps_per_s")})
        frame.update(metrics=values.get("metrics", {}), ended=values.get("ended", False))
        # What Keras was given may be of any type; telling about it must never fail a fit.
        with contextlib.suppress(Exception):
            self._link.send({"kind": "progress", **frame})


def _count(value: Any) -> int | None:
    """A count as Python's own int; None for what is not one."""
    try:
        return operator.index(int(value) if value == int(value) else value)
    except (TypeError, ValueError):
        return None
