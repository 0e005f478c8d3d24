"""Models as the old library exported and applied them, in this process: no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tensorflowonspark import compat
from tensorflowonspark.saved_model import ModelTask, _loaded
from tensorflowonspark.tensors import to_values

FLOATS = pa.list_(pa.float32())


@pytest.fixture(autouse=True)
def forget_models() -> Iterator[None]:
    yield
    _loaded.clear()


def apply(task: ModelTask, **columns: Any) -> dict[str, list[Any]]:
    """Asks for the schema, then for the answers, as transform() does."""
    batch = pa.RecordBatch.from_pydict(columns)
    (described,) = task(iter([batch.slice(0, 1)]))
    schema = pa.ipc.read_schema(pa.py_buffer(described.column(0)[0].as_py()))
    found = list(replace(task, answers=schema)(iter([batch])))
    return pa.Table.from_batches(found).to_pydict()


@pytest.fixture(scope="module")
def module_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two inputs, one of them text; two outputs; two signatures."""
    import tensorflow as tf

    class Tagger(tf.Module):  # type: ignore[misc]
        @tf.function(
            input_signature=[
                tf.TensorSpec([None, 2, 2], tf.float32, "x"),
                tf.TensorSpec([None], tf.string, "s"),
            ]
        )
        def tag(self, x: Any, s: Any) -> Any:
            return {"total": tf.reduce_sum(x, [1, 2]), "name": tf.strings.join([s, "!"])}

        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int64, "x")])
        def double(self, x: Any) -> Any:
            return {"doubled": x * 2}

    tagger = Tagger()
    path = str(tmp_path_factory.mktemp("model") / "tagger")
    signatures = {"serving_default": tagger.tag, "double": tagger.double}
    tf.saved_model.save(tagger, path, signatures)
    return path


def make_task(path: str, **options: Any) -> ModelTask:
    chosen: dict[str, Any] = {
        "signature": "serving_default",
        "tags": ("serve",),
        "inputs": {"pixels": "x", "label": "s:0"},
        "outputs": {"name": "a_name", "total": "sum"},
        "batch_size": 2,
        "answers": None,
    }
    return ModelTask(export_dir=path, **{**chosen, **options})


def test_text_and_arrays_in_and_two_outputs_back(module_dir: str) -> None:
    flat = pa.array([[1, 2, 3, 4], [5, 6, 7, 8], [0, 0, 0, 1]], FLOATS)
    nested = pa.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]], [[0, 0], [0, 1]]], pa.list_(FLOATS))
    expected = {"a_name": [b"a!", "ö!".encode(), b"c!"], "sum": [10.0, 26.0, 1.0]}
    for pixels in (flat, nested):
        found = apply(make_task(module_dir), pixels=pixels, label=pa.array(["a", "ö", "c"]))
        assert found == expected
    labels = pa.array([b"a", "ö".encode(), b"c"])
    assert apply(make_task(module_dir), pixels=flat, label=labels) == expected


def test_what_the_model_does_not_have(module_dir: str) -> None:
    columns = {"pixels": pa.array([[1, 2, 3, 4]], FLOATS), "label": pa.array(["a"])}
    with pytest.raises(KeyError, match=r"no signature 'other'; it has: .*double"):
        apply(make_task(module_dir, signature="other"), **columns)
    with pytest.raises(KeyError, match="the model has no input 'y'; it has"):
        apply(make_task(module_dir, inputs={"pixels": "y", "label": "s"}), **columns)
    with pytest.raises(KeyError, match="no column is mapped to the inputs s of the model"):
        apply(make_task(module_dir, inputs={"pixels": "x"}), **columns)
    with pytest.raises(KeyError, match="no output 'sum'; it has"):
        apply(make_task(module_dir, outputs={"sum": "a", "name": "b"}), **columns)
    with pytest.raises(ValueError, match="gpu"):
        apply(make_task(module_dir, tags=("gpu",)), **columns)


def test_the_only_input_and_output_need_no_name(module_dir: str) -> None:
    task = make_task(
        module_dir, signature="double", inputs={"c": "conv2d_input"}, outputs={"dense_1": "p"}
    )
    column = pa.array([[1, 2], [3, 4]], pa.list_(pa.int32()))
    assert apply(task, c=column) == {"p": [[2, 4], [6, 8]]}


@pytest.mark.parametrize(
    ("values", "shape", "message"),
    [
        ([[1.0, 2.0], [3.0]], [None, None], "2 values in row 0 and 1 in row 1 of a batch of 2"),
        ([[1.0], [2.0, 3.0, 4.0]], [None, 2], "1 values in row 0 and 3 in row 1"),
        ([[1.0, 2.0], None], [None, 2], "has null in row 1 of a batch of 2"),
        ([[1.0, 2.0], [None, 2.0]], [None, 2], "has a null inside in row 1"),
        ([None, 1.0], [None], "has null in row 0 of a batch of 2"),
        ([[1.0, 2.0, 3.0]], [None, 2], "3 values a row.*expected 2"),
        ([[1.0, 2.0, 3.0]], [None, None, 2], "3 values a row.*expected a multiple of 2"),
        ([[[1.0, 2.0], [3.0]], [[4.0], [5.0, 6.0]]], [None, None, None], "at depth 2.*in row 0"),
        ([[[1.0], [2.0]], [[3.0], None]], [None, 2, 1], "a null inside in row 1"),
        ([[1.0, 2.0]], [None, None, None], "expected arrays nested 2 deep"),
        ([{"a": 1}], [None], "values of type struct"),
    ],
)
def test_rows_that_have_no_one_shape_are_refused(values: Any, shape: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        to_values(pa.array(values), "pixels", shape)
    assert "column 'pixels'" in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ([None, 4], (3, 4)),
        ([None, 2, 2], (3, 2, 2)),
        ([None, None, 2], (3, 2, 2)),
        ([None, None], (3, 4)),
        (None, (3, 4)),
    ],
)
def test_arrays_take_the_shape_of_the_tensor(shape: Any, expected: Any) -> None:
    column = pa.array([[9.0] * 4, *([float(n)] * 4 for n in range(3))]).slice(1)
    found = to_values(column, "x", shape)
    assert found.shape == expected
    assert found.reshape(3, 4).tolist() == [[float(n)] * 4 for n in range(3)]
    assert to_values(pa.array([1, 2, 3]), "x", [None, 1]).shape == (3, 1)
    fixed = pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2))
    assert to_values(fixed, "x", [None, 2]).tolist() == [[1, 2], [3, 4]]


def test_exports_of_keras_3_have_the_names_of_keras_2(tmp_path: Path) -> None:
    import keras

    keras.utils.clear_session()
    layers = keras.layers
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dense(2)])
    compat.export_saved_model(model, str(tmp_path / "worker"), is_chief=False)
    assert not (tmp_path / "worker").exists()
    path = str(tmp_path / "sequential")
    compat.export_saved_model(model, path, is_chief=True)
    assert names_of(path) == ({"dense_input"}, {"dense_1"})
    task = make_task(path, inputs={"image": "dense_input"}, outputs={"dense_1": "prediction"})
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)
    found = apply(task, image=pa.array(list(rows)))
    np.testing.assert_allclose(found["prediction"], model.predict_on_batch(rows), rtol=1e-5)

    first, second = keras.Input((2,), name="first"), keras.Input((2,), name="second")
    total = layers.Add(name="total")([first, second])
    pair = keras.Model([first, second], [total, layers.Subtract(name="rest")([first, second])])
    path = str(tmp_path / "pair")
    compat.export_saved_model(pair, path, is_chief=True)
    assert names_of(path) == ({"first", "second"}, {"total", "rest"})
    task = make_task(path, inputs={"a": "first", "b": "second"}, outputs={"rest": "r"})
    found = apply(task, a=pa.array([[5.0, 6.0]], FLOATS), b=pa.array([[1.0, 1.0]], FLOATS))
    assert found == {"r": [[4.0, 5.0]]}

    named = keras.Model({"second": second, "first": first}, {"out": total})
    path = str(tmp_path / "named")
    compat.export_saved_model(named, path, is_chief=True)
    assert names_of(path) == ({"first", "second"}, {"out"})


def names_of(path: str) -> tuple[set[str], set[str]]:
    from tensorflowonspark.pipeline import get_meta_graph_def

    with pytest.raises(RuntimeError, match="no graph with the tags 'gpu'; it has: serve"):
        get_meta_graph_def(path, "gpu")
    signature = get_meta_graph_def(path, "serve").signature_def["serving_default"]
    return set(signature.inputs), set(signature.outputs)


def test_a_monitored_session_is_exported_and_goes_on(tmp_path: Path) -> None:
    import tensorflow.compat.v1 as tf

    from tensorflowonspark import TFNode

    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None], "x")
        weight = tf.get_variable("weight", (), initializer=tf.constant_initializer(3.0))
        tf.train.get_or_create_global_step()
        y = x * weight
        signatures = {"serving_default": {"inputs": {"x": x}, "outputs": {"y": y}}}
        with tf.train.MonitoredTrainingSession() as session:
            path = str(tmp_path / "model")
            TFNode.export_saved_model(session, path, "serve", signatures)
            assert session.graph.finalized
            assert session.run(y, {x: [1.0]}).tolist() == [3.0]
    task = make_task(path, inputs={"a": "x"}, outputs={"y": "b"})
    assert apply(task, a=pa.array([1.0, 2.0])) == {"b": [3.0, 6.0]}
