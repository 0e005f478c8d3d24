"""What the user's function gets: who it is, the strategy, and where to write."""

from __future__ import annotations

import contextlib
import itertools
import operator
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparktrain.errors import ConfigError
from sparktrain.spec import CHIEF, NodeSpec
from sparktrain.trainer.event_copies import EventCopies
from sparktrain.trainer.meter import FeedMeter
from sparktrain.trainer.stream import StreamTable

if TYPE_CHECKING:
    from sparktrain.trainer.detached import Stream
    from sparktrain.trainer.feed import Feed
    from sparktrain.trainer.link import AgentLink
    from sparktrain.wire.parameters import Stores


class Context:
    """The node's view of its run.

        def train(ctx):
            with ctx.strategy.scope():
                model = build(); model.compile(...)
            model.fit(dataset, epochs=5, callbacks=ctx.callbacks())
            ctx.export(model)

    Attributes:
        role: "chief", "worker", "evaluator" or "ps".
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
        feed: Feed,
        stream: Stream | None = None,
        stores: Stores | None = None,
        num_mirrors: int = 0,
        events: Mapping[str, Any] | None = None,
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
        #: What is written beside scalars, and what copies it to a store.
        self.events: tuple[str, ...] = tuple((events or {}).get("kinds", ()))
        copy_to = (events or {}).get("copy_to", "")
        self.copies = EventCopies(self, copy_to) if copy_to else None
        #: How often callbacks() was called.
        self.num_fits = 0
        #: Rows and steps of finished epochs, over all calls of fit.
        self.rows_done = 0
        self.steps_done = 0
        #: The tables of run(data=...), and what is measured of them.
        self.feed = feed
        self.meter = FeedMeter()
        #: What comes to a cluster; None in a run.
        self.stream = stream
        #: Where parameters are held, with periodic synchronisation.
        self.stores = stores
        #: The models that are synchronised, by the order in which they came, and their next fits.
        self._synced: list[tuple[Any, Iterator[int]]] = []
        self._link = link
        self._distributed = distributed
        #: GPUs of a node that trains alone.
        self._num_mirrors = num_mirrors
        self._strategy: Any = None

    def prepare(self) -> None:
        """Makes the strategy: TensorFlow wants it before anything else is computed."""
        # For code that is given no context, such as that of the drop-in packages.
        os.environ["SPARKTRAIN_LOG_DIR"] = self.log_dir
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
        self.meter.clock = self._strategy.clock
        self.meter.make_counter()  # outside of any scope, which would make it a mirrored variable
        keras = sys.modules.get("keras")  # absent where the user asked for tf_keras
        message = check_version(keras.__version__) if keras is not None else None
        if message is not None:
            warnings.warn(message, stacklevel=2)

    def use_strategy(self, strategy: Any, is_together: bool = False) -> None:
        """A strategy that was made elsewhere.

        Args:
            is_together: Whether it has workers take their steps together, as our own does.
        """
        self._strategy = strategy
        if is_together:
            self._distributed = True
            self.meter.clock = strategy.clock
            if self.stream is not None:
                self.stream.is_together = True

    @property
    def strategy(self) -> Any:
        """The tf.distribute strategy of this run.

        Of a worker that trains alone TensorFlow's default one, or one that uses all its GPUs if
        it has several.
        """
        if self._strategy is None and self._num_mirrors > 1 and self.rank is not None:
            from sparktrain.trainer.strategy import KerasMirroredStrategy

            self.meter.make_counter()  # as above
            self._strategy = KerasMirroredStrategy()
            self.meter.clock = self._strategy.clock
        if self._strategy is None:
            import tensorflow as tf

            self._strategy = tf.distribute.get_strategy()
        return self._strategy

    @property
    def should_stop(self) -> bool:
        """True once the driver wants the function to end: at timeout_s or Ctrl-C."""
        return self._link.stop.is_set()

    def dataset(
        self,
        name: str = "train",
        *,
        batch_size: int,
        features: str | Sequence[str] | None = None,
        label: str | None = None,
        weight: str | None = None,
        shuffle: int | bool = False,
        seed: int = 0,
        drop_remainder: bool = False,
    ) -> Any:
        """A tf.data.Dataset of this worker's rows of a table of run(data=...).

            model.fit(ctx.dataset("train", batch_size=256, features=["image"], label="label"))

        Every iteration is a pass over all rows; the first one begins while they still arrive.

        Args:
            name: The table. Defaults to "train", which is also the name of run(data=df).
            batch_size: Of the global batch, over all workers, as everywhere in fit.
            features: Columns for x: one gives its tensor, several a dict. Defaults to all but
                label and weight.
            label, weight: Columns for y and the sample weights. With neither features nor a
                label, batches are dicts of all columns.
            shuffle: Mixes rows within a window of so many rows; True means 10,000. When this
                dataset has read the whole table, its later passes mix the blocks as well.
            seed: The same seed gives the same order in the same pass.
            drop_remainder: Leaves out the last batch of this worker if it is not full.
        """
        from sparktrain.trainer.dataset import make_choice, make_dataset, make_stream_dataset

        source: Any
        if self.stream is not None and name not in self.feed.tables:
            source = self.stream.find(name, self.rank, self._num_parts)
        else:
            source = self.feed.find(name, self.rank)
        choice = make_choice(
            name,
            source.columns,
            batch_size=batch_size,
            features=features,
            label=label,
            weight=weight,
            shuffle=shuffle,
            seed=seed,
            drop_remainder=drop_remainder,
        )
        # Keras' default is shuffle=True, and Keras warns that it means nothing for a dataset.
        warnings.filterwarnings("ignore", message="`shuffle=True` was passed")
        if isinstance(source, StreamTable):
            # A stream has no length; its end is not a shortage.
            warnings.filterwarnings("ignore", message="Your input ran out of data")
            dataset = make_stream_dataset(source, choice, self.meter)
        else:
            # Keras looks at a batch before it trains, under every strategy but the default one.
            num_looks = int(self._distributed or self._num_mirrors > 1)
            dataset = make_dataset(source, choice, self.meter, num_looks)
        if self._distributed:
            from sparktrain.trainer.strategy import turn_sharding_off

            return turn_sharding_off(dataset)
        if self.meter.clock is None:
            from sparktrain.trainer.clock import watch_default_strategy

            self.meter.clock = watch_default_strategy()
        return dataset

    @property
    def _num_parts(self) -> int:
        return int(self.strategy.num_replicas_in_sync) if self._distributed else 1

    def rows(self, name: str = "train") -> Iterator[Any]:
        """The rows fed to this node of a cluster, as Python values, to the end of all feeds.

            for row in ctx.rows():
                ...

        Args:
            name: The table. Defaults to "train".
        """
        return self._find_stream("rows").rows(name)

    def save_with(self, save: Callable[[], None]) -> None:
        """For functions that take ctx.rows() of a stream: how to write a checkpoint.

        Called between two rows, when all rows of a batch of the stream were handed over. Spark
        keeps the offsets of the batch after that. fit with ctx.callbacks() does this by itself.

        Args:
            save: Writes what was learnt so far; may take its time.
        """
        self._find_stream("save_with").saves.save_between_rows = save

    def stop_feed(self) -> None:
        """Wants no more rows: feeds that are on their way end at once, on every node."""
        self._find_stream("stop_feed").stop()

    def serve(
        self, function: Callable[[Any], Any], *, batch_size: int = 1024, background: bool = False
    ) -> None:
        """Answers the rows of cluster.predict() until the cluster stops.

            ctx.serve(lambda batch: model(batch["image"], training=False))

        Args:
            function: Called with a dict of arrays by column; returns one answer a row: an array,
                or a dict of arrays by name.
            batch_size: Rows of a call, at most. Defaults to 1024.
            background: Whether to answer in a thread, beside whatever comes next.
        """
        self._find_stream("serve").serve(function, batch_size, background)

    def _find_stream(self, what: str) -> Stream:
        if self.stream is None:
            raise ConfigError(
                problem=f"ctx.{what}() was called in a run.",
                advice="It is for functions of st.cluster().",
            )
        return self.stream

    def close(self) -> None:
        """Called when the function is over: tells what was measured, ends what waits for rows."""
        self.feed.close()
        self.send_feed()
        if self.copies is not None:
            self.copies.close()

    def send_feed(self) -> None:
        """Tells the agent how the input has been so far."""
        if self.feed.tables:
            with contextlib.suppress(Exception):
                self._link.send({"kind": "feed", **self.meter.to_dict(), "queue": self.feed.depth})

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

    def callbacks(self, *own: Any, save_freq: Any = "epoch", events: Any = None) -> list[Any]:
        """Keras callbacks: resume, progress, TensorBoard; then your own. One call for each fit.

        Args:
            own: Your callbacks. Those that write files (ModelCheckpoint, CSVLogger,
                TensorBoard) are kept on the chief only: several workers must not write one file.
            save_freq: "epoch", or a number of steps between checkpoints. Defaults to "epoch".
            events: What is written for TensorBoard beside scalars: some of "graph", "histograms"
                and "profile". Defaults to the setting `events`.
        """
        from sparktrain.trainer.callbacks import make_callbacks

        return make_callbacks(self, own, save_freq, events)

    def parameter_server(
        self,
        model: Any,
        *,
        sync_interval: int = 100,
        rule: str = "average",
        alpha: float | None = None,
        wait_s: float = 60.0,
    ) -> Any:
        """A Keras callback: workers train alone, and meet at the parameter servers now and then.

            model.fit(dataset, callbacks=ctx.callbacks(ctx.parameter_server(model)))

        For run(num_ps=...). The first weights are the chief's; docs/parameter-server.md has the
        rules.

        Args:
            model: A Keras model; every worker builds the same one.
            sync_interval: Steps between two meetings. Defaults to 100.
            rule: "average", "delta" or "elastic". Defaults to "average".
            alpha: How strongly "elastic" pulls, above 0 and below 1. Defaults to
                0.9 / num_workers.
            wait_s: How long the chief waits at the end of fit for the fits of the others, before
                it takes the last weights. Defaults to 60.
        """
        if self.stores is None:
            raise ConfigError(
                problem="ctx.parameter_server() was called, and there are no parameter servers.",
                advice="Give run(num_ps=1, ...), or cluster(num_ps=1, distribution='periodic').",
            )
        import tensorflow as tf

        from sparktrain.trainer.periodic import make_sync_callback

        if not any(one is model for one, _ in self._synced):
            self._synced.append((model, itertools.count(1)))
        number = next(n for n, (one, _) in enumerate(self._synced) if one is model)
        return make_sync_callback(
            tf.keras,
            self,
            model,
            f"model-{number}",
            fits=self._synced[number][1],
            sync_interval=sync_interval,
            rule=rule,
            alpha=alpha,
            wait_s=wait_s,
        )

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
        numbers = ("examples_per_s", "steps_per_s", "input_wait")
        frame.update({name: values.get(name) for name in numbers})
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
