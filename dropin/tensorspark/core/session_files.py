"""The files of a session: its graph and its values, on any store that all hosts see.

path         the values of all variables that have one, as numpy's .npz
path.meta    the graph, a MetaGraphDef
path.saver   the names of the variables, and which of them are packed, as JSON

Text and types that only TensorFlow has, such as bfloat16, are packed: numpy would write pickles.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparktrain.data.storage import open_store
from sparktrain.errors import ConfigError
from tensorspark.core.session_util import find_variables


@dataclass(frozen=True)
class SessionFiles:
    """Where a session is."""

    path: str
    storage_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def meta_path(self) -> str:
        return f"{self.path}.meta"

    @property
    def saver_path(self) -> str:
        return f"{self.path}.saver"

    def write(self, meta: bytes, values: Mapping[str, Any]) -> None:
        """Raises ConfigError where that cannot be."""
        names = list(values)
        body = io.BytesIO()
        # Names of variables have slashes and colons, which are no good as names in a zip file.
        np.savez(body, **{str(n): pack_value(values[name]) for n, name in enumerate(names)})
        packed = [name for name in names if not is_plain(values[name])]
        index = json.dumps({"variables": names, "packed": packed}).encode()
        contents = {self.path: body.getvalue(), self.meta_path: meta, self.saver_path: index}
        store, path = open_store(self.path, self.storage_options)
        try:
            store.makedirs(store._parent(path), exist_ok=True)
            for url, data in contents.items():
                store.pipe_file(open_store(url, self.storage_options)[1], data)
        # Each store has errors of its own.
        except Exception as error:
            raise ConfigError(
                problem=f"The session cannot be written to {self.path}: {error}.",
                advice="Set spark.hdfs.dir to a folder that the driver may write to, and that all"
                " executors can read.",
            ) from error

    def read(self) -> tuple[bytes, dict[str, Any]]:
        """The graph, and values by name."""
        meta, body, index = (
            self._read(url) for url in (self.meta_path, self.path, self.saver_path)
        )
        told = json.loads(index)
        with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
            values = {name: arrays[str(n)] for n, name in enumerate(told["variables"])}
        return meta, {**values, **{name: _unpack_value(values[name]) for name in told["packed"]}}

    def _read(self, url: str) -> bytes:
        store, path = open_store(url, self.storage_options)
        data: bytes = store.cat_file(path)
        return data

    def remove(self) -> None:
        """What is there of them."""
        for url in (self.path, self.meta_path, self.saver_path):
            store, path = open_store(url, self.storage_options)
            if store.exists(path):
                store.rm_file(path)


def is_plain(value: Any) -> bool:
    """Whether it is of a type of numpy's own, which have a number of bytes each."""
    return value.dtype.isbuiltin == 1 and not value.dtype.hasobject


def pack_value(value: Any) -> Any:
    """An array that can be saved: of the bytes of a TensorProto, if it is none itself."""
    if is_plain(value):
        return value
    import tensorflow as tf

    proto = tf.make_tensor_proto(value)
    return np.frombuffer(proto.SerializeToString(deterministic=True), np.uint8)


def _unpack_value(packed: Any) -> Any:
    import tensorflow as tf
    from tensorflow.core.framework.tensor_pb2 import TensorProto

    return tf.make_ndarray(TensorProto.FromString(packed.tobytes()))


def pack_graph(graph: Any) -> bytes:
    import tensorflow as tf

    with graph.as_default():  # also where the program has not turned eager execution off
        meta = tf.compat.v1.train.export_meta_graph(graph=graph)
    data: bytes = meta.SerializeToString(deterministic=True)
    return data


def load_graph(data: bytes) -> tuple[Any, dict[str, Any]]:
    """A copy of the graph, and its variables by name."""
    import tensorflow as tf

    meta = tf.compat.v1.MetaGraphDef.FromString(data)
    graph = tf.Graph()
    with graph.as_default():
        tf.compat.v1.train.import_meta_graph(meta)
    return graph, find_variables(graph)
