"""A SavedModel in a Spark task: loaded once for each Python worker, Arrow in, Arrow out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sparktrain.data.answers import to_arrow
from tensorflowonspark.tensors import to_values

#: Models of this Python worker, by where they are.
_loaded: dict[tuple[Any, ...], Any] = {}


@dataclass(frozen=True)
class ModelTask:
    """The callable given to mapInArrow.

    Args:
        inputs: Columns to tensors.
        outputs: Tensors to columns.
        answers: The schema of the outputs; None hands that back instead.
    """

    export_dir: str
    signature: str
    tags: tuple[str, ...]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    batch_size: int
    answers: pa.Schema | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        function = None
        for batch in batches:
            if batch.num_rows == 0:
                continue
            if function is None:
                function = self._load()
            result = self._call(function, batch)
            if self.answers is None:
                schema = result.schema.serialize().to_pybytes()
                yield pa.RecordBatch.from_pydict({"schema": [schema]})
                # To the end: Spark gives up a worker that leaves rows unread, and with it the
                # model that the next job would find there.
                for _ in batches:
                    pass
                return
            yield result.cast(self.answers)

    def _load(self) -> Any:
        import tensorflow as tf

        key = (self.export_dir, self.tags, self.signature)
        if key not in _loaded:
            model = tf.saved_model.load(self.export_dir, tags=list(self.tags) or None)
            if self.signature not in model.signatures:
                known = ", ".join(model.signatures) or "none"
                raise KeyError(f"the model has no signature {self.signature!r}; it has: {known}")
            # The model itself must live as long as its function.
            _loaded[key] = (model, model.signatures[self.signature])
        return _loaded[key][1]

    def _call(self, function: Any, batch: pa.RecordBatch) -> pa.RecordBatch:
        """All of Spark's batch, in calls of batch_size rows."""
        inputs = self._make_inputs(function, batch)
        pieces: dict[str, list[pa.Array]] = {column: [] for column in self.outputs.values()}
        for start in range(0, batch.num_rows, self.batch_size):
            stop = min(start + self.batch_size, batch.num_rows)
            found = function(**{name: make(start, stop) for name, make in inputs.items()})
            for tensor, column in self.outputs.items():
                name = _find(tensor, found, len(self.outputs), "output")
                array = to_arrow(found[name].numpy(), column)
                if len(array) != stop - start:
                    raise ValueError(
                        f"the model gave {len(array)} rows as {tensor!r} for {stop - start}"
                    )
                pieces[column].append(array)
        arrays = [pa.concat_arrays(some) for some in pieces.values()]
        return pa.RecordBatch.from_arrays(arrays, names=list(pieces))

    def _make_inputs(
        self, function: Any, batch: pa.RecordBatch
    ) -> dict[str, Callable[[int, int], Any]]:
        """For each input how to make the tensor of some rows: columns are converted once."""
        import tensorflow as tf

        specs = function.structured_input_signature[1]
        found: dict[str, Callable[[int, int], Any]] = {}
        for column, tensor in self.inputs.items():
            name = _find(tensor, specs, len(self.inputs), "input")
            spec = specs[name]
            shape = None if spec.shape.rank is None else spec.shape.as_list()
            values = to_values(batch.column(column), column, shape)

            def make(start: int, stop: int, values: Any = values, dtype: Any = spec.dtype) -> Any:
                return tf.constant(values[start:stop], dtype=dtype)

            found[name] = make
        missing = sorted(set(specs) - set(found))
        if missing:
            raise KeyError(
                f"no column is mapped to the inputs {', '.join(missing)} of the model; it has:"
                f" {', '.join(specs)}"
            )
        return found


def _find(tensor: str, known: Mapping[str, Any], num_wished: int, what: str) -> str:
    """The name of an input or output. Where there is one only, it need not be named rightly:
    Keras 3 calls them by other names than the Keras that programs were written for.
    """
    name = tensor.removesuffix(":0")
    if name in known:
        return name
    if len(known) == num_wished == 1:
        return next(iter(known))
    raise KeyError(f"the model has no {what} {tensor!r}; it has: {', '.join(known)}")
