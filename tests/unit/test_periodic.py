"""A Keras model that meets parameter servers over real Flight, in one process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pyarrow.flight as fl
import pytest

from sparktrain.agent.doors import make_door
from sparktrain.errors import ConfigError
from sparktrain.spec import NodeSpec
from sparktrain.trainer import periodic
from sparktrain.trainer.context import Context
from sparktrain.trainer.periodic import Synchroniser, make_sync_callback
from sparktrain.trainer.store import Store
from sparktrain.trainer.store_door import OpenStore
from sparktrain.wire.flight import Door
from sparktrain.wire.parameters import ParameterClient, Stores


@contextlib.contextmanager
def serving(folder: Path, index: int = 0) -> Iterator[Door]:
    folder.mkdir(exist_ok=True)
    door, secret = make_door(NodeSpec("ps", index), "127.0.0.1", folder, "secret")
    with OpenStore(secret, Store()) as opened:
        yield Door(**{**door.to_dict(), "port": opened.port})


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    with serving(tmp_path / "0") as one, serving(tmp_path / "1", 1) as two:
        yield Stores((one, two), "secret")


def make_context(stores: Stores, rank: int | None = 0) -> Any:
    role, index = ("evaluator", 0) if rank is None else ("worker", rank)
    return SimpleNamespace(
        stores=stores, rank=rank, num_workers=2, role=role, index=index, should_stop=False
    )


def make_model(seed: int = 1, dtype: str = "float32") -> Any:
    keras.utils.set_random_seed(seed)
    layers = [
        keras.Input((4,)),
        keras.layers.Dense(3, dtype=dtype),
        keras.layers.BatchNormalization(momentum=0.5),
        keras.layers.Dropout(0.5),
        keras.layers.Dense(2, dtype=dtype),
    ]
    model = keras.Sequential(layers)
    model.compile("rmsprop", "mse")
    return model


ROWS = np.random.default_rng(1).normal(size=(64, 4)).astype("float32") + 3, np.ones((64, 2))


def fit(model: Any, *callbacks: Any) -> None:
    model.fit(*ROWS, batch_size=8, epochs=2, verbose=0, callbacks=list(callbacks))


def make_callback(stores: Stores, model: Any, rank: int | None = 0, **wishes: Any) -> Any:
    wishes = {"sync_interval": 3, "rule": "average", "alpha": None, "wait_s": 0.0} | wishes
    return make_sync_callback(keras, make_context(stores, rank), model, "model-0", **wishes)


@pytest.mark.parametrize("rule", ["average", "delta", "elastic"])
def test_two_workers_end_with_the_same_weights(stores: Stores, rule: str) -> None:
    models = [make_model(1), make_model(2)]
    before = models[0].get_weights()
    callbacks = [
        make_callback(stores, model, rank, rule=rule, wait_s=60.0)
        for rank, model in enumerate(models)
    ]
    threads = [
        threading.Thread(target=fit, args=both) for both in zip(models, callbacks, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    after = models[0].get_weights()
    assert all(not np.allclose(old, new) for old, new in zip(before, after, strict=True))
    # 16 steps, a meeting after each third, and one at the end.
    assert [callback.num_syncs for callback in callbacks] == [6, 6]
    again = make_model(3)
    meeting = Synchroniser(make_context(stores, 1), "model-0", again, rule, 0.5)
    meeting.join()
    meeting.close()
    for mine, theirs in zip(after, again.get_weights(), strict=True):
        np.testing.assert_allclose(mine, theirs)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_delta_knows_what_was_learnt_alone(stores: Stores, dtype: str) -> None:
    """Also in a type that numpy does not know. Statistics move by the mean."""
    models = [make_model(dtype=dtype), make_model(dtype=dtype)]
    one, two = (
        Synchroniser(make_context(stores, rank), "model-0", model, "delta", 0.5)
        for rank, model in enumerate(models)
    )
    one.join()
    two.join()
    kernels = [model.layers[0].kernel for model in models]
    kernels[0].assign(keras.ops.full(kernels[0].shape, 1.0, kernels[0].dtype))
    one.sync()
    two.sync()
    for _ in range(3):
        kernels[0].assign(kernels[0] + 1.0)
        one.sync()
        kernels[1].assign(kernels[1] + 1.0)
        two.sync()
        one.sync()
    for kernel in kernels:
        np.testing.assert_allclose(np.asarray(kernel.numpy(), np.float32), 7.0, rtol=1e-6)
    means = [model.layers[1].moving_mean for model in models]
    for mean, meeting in zip(means, (one, two), strict=True):
        mean.assign(mean + 1.0)
        meeting.sync()
    np.testing.assert_allclose(means[1].numpy(), 1.0)
    one.close()
    two.close()


def test_steps_of_the_optimizer_do_not_change_what_was_before(stores: Stores) -> None:
    """TensorFlow may share memory with the arrays that it is given."""
    model = make_model()
    meeting = Synchroniser(make_context(stores), "model-0", model, "delta", 0.5)
    meeting.join()
    base = [array.copy() for array in meeting._base]
    fit(model)
    for array, kept in zip(meeting._base, base, strict=True):
        np.testing.assert_array_equal(array, kept)
    meeting.close()


def test_layers_may_be_frozen_between_fits(stores: Stores) -> None:
    model = make_model()
    model.layers[0].trainable = False
    model.compile("sgd", "mse")
    first = model.layers[0].kernel.numpy()
    fit(model, make_callback(stores, model, rule="delta"))
    np.testing.assert_array_equal(model.layers[0].kernel.numpy(), first)
    model.layers[0].trainable = True
    model.compile("adam", "mse")
    fit(model, make_callback(stores, model, rule="delta"))
    assert not np.allclose(model.layers[0].kernel.numpy(), first)


def test_an_outage_is_passed_over_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model()
    with serving(tmp_path / "0") as door:
        context = make_context(Stores((door,), "secret"))
        meeting = Synchroniser(context, "model-0", model, "average", 0.5)
        meeting.join()
    fit(model)
    learnt = model.get_weights()
    meeting.sync()
    assert meeting.num_syncs == 0
    for mine, kept in zip(model.get_weights(), learnt, strict=True):
        np.testing.assert_array_equal(mine, kept)
    monkeypatch.setattr(periodic, "OUTAGE_S", 0.3)
    with pytest.raises(fl.FlightUnavailableError):
        meeting.finish(0.0)
    meeting.close()


def test_nothing_learnt_is_left_out_at_the_end(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage at the last meeting has no later one that could make up for it."""
    model = make_model()
    meeting = Synchroniser(make_context(stores), "model-0", model, "average", 1.0)
    meeting.join()
    kernel = model.layers[0].kernel
    kernel.assign(keras.ops.full(kernel.shape, 8.0))
    sync, calls = meeting._client.sync, []

    def fail_first(*args: Any) -> None:
        calls.append(args)
        if len(calls) == 1:
            raise fl.FlightUnavailableError("away for a moment")
        sync(*args)

    monkeypatch.setattr(meeting._client, "sync", fail_first)
    meeting.finish(0.0)
    meeting.close()
    assert len(calls) == 2
    np.testing.assert_allclose(kernel.numpy(), 8.0, rtol=1e-6)


def test_delta_counts_once_what_was_brought_before_an_outage(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The servers have added it, and the answers are lost: of all parts, or of some."""
    model = make_model()
    meeting = Synchroniser(make_context(stores), "model-0", model, "delta", 0.5)
    meeting.join()
    kernels = [model.layers[0].kernel, model.layers[3].kernel]
    before = [kernel.numpy() for kernel in kernels]
    sync, reached = meeting._client.sync, meeting._client.settle
    servers = {part.server for part in meeting._client.parts}
    assert servers == {0, 1}

    def lose(rule: str, rate: float, get: Any, take: Any) -> None:
        def take_some(part: Any, values: Any) -> None:
            if part.server == 1:
                take(part, values)

        sync(rule, rate, get, take_some)
        raise fl.FlightUnavailableError("away for a moment")

    def away() -> Any:
        raise fl.FlightUnavailableError("still away")

    def learn() -> None:
        for kernel in kernels:
            kernel.assign(kernel + 1.0)

    learn()
    monkeypatch.setattr(meeting._client, "sync", lose)
    meeting.sync()
    learn()
    monkeypatch.setattr(meeting._client, "settle", away)
    meeting.sync()
    assert meeting.num_syncs == 0
    learn()
    monkeypatch.setattr(meeting._client, "sync", sync)
    monkeypatch.setattr(meeting._client, "settle", reached)
    meeting.sync()
    assert meeting.num_syncs == 1
    meeting.pull()
    meeting.close()
    for kernel, first in zip(kernels, before, strict=True):
        np.testing.assert_allclose(kernel.numpy(), first + 3.0, rtol=1e-6)


@pytest.mark.parametrize(
    ("rule", "server", "worker"), [("average", 0.5, 0.5), ("elastic", 0.5, 0.5)]
)
def test_answers_that_were_lost_count_once(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, rule: str, server: float, worker: float
) -> None:
    """The servers have moved by half the way, and the worker goes on as if it had heard of it."""
    model = make_model()
    meeting = Synchroniser(make_context(stores), "model-0", model, rule, 0.5)
    kernels = [model.layers[0].kernel, model.layers[3].kernel]
    for kernel in kernels:
        kernel.assign(keras.ops.zeros(kernel.shape))
    meeting.join()
    sync = meeting._client.sync

    def lose(rule: str, rate: float, get: Any, take: Any) -> None:
        sync(rule, rate, get, lambda part, values: None)
        raise fl.FlightUnavailableError("away for a moment")

    for kernel in kernels:
        kernel.assign(keras.ops.ones(kernel.shape))
    monkeypatch.setattr(meeting._client, "sync", lose)
    meeting.sync()
    for kernel in kernels:  # learnt since
        kernel.assign(kernel + 0.25)
    meeting._settle()
    np.testing.assert_allclose(read_servers(stores), server, rtol=1e-6)
    for kernel in kernels:
        np.testing.assert_allclose(kernel.numpy(), worker + 0.25, rtol=1e-6)
    meeting.close()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("rule", ["average", "delta", "elastic"])
def test_training_goes_on_after_outages(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, rule: str, dtype: str
) -> None:
    """Of some parts or of all: what is kept meanwhile is given to TensorFlow later on."""
    model = make_model(dtype=dtype)
    meeting = Synchroniser(make_context(stores), "model-0", model, rule, 0.5)
    meeting.join()
    sync = meeting._client.sync

    def lose(rule: str, rate: float, get: Any, take: Any) -> None:
        def take_some(part: Any, values: Any) -> None:
            if part.server == 0:
                take(part, values)

        sync(rule, rate, get, take_some)
        raise fl.FlightUnavailableError("away for a moment")

    for is_lost in (False, True, False, False, True, True, False, False):
        fit(model)
        monkeypatch.setattr(meeting._client, "sync", lose if is_lost else sync)
        meeting.sync()
        fit(model)
    fit(model)
    assert meeting.num_syncs == 5
    if rule == "delta":  # a worker alone: what it has learnt is what the servers have
        meeting.sync()
        before = [np.asarray(value, np.float32) for value in model.get_weights()]
        meeting.pull()
        for old, new in zip(before, model.get_weights(), strict=True):
            np.testing.assert_array_equal(old, np.asarray(new, np.float32))
    meeting.close()


def test_every_fit_of_a_model_has_its_own_number(stores: Stores) -> None:
    """Also where each has a callback of its own: the chief waits for the same fit of the others."""
    model = make_model()
    context = make_context(stores)
    context._synced = []
    for _ in range(2):
        fit(model, Context.parameter_server(context, model, wait_s=0.0))
    with ParameterClient(stores, "model-0", [], 1) as client:
        assert [dict(state["fits"]) for state in client.states()] == [{0: 2}, {0: 2}]


@pytest.mark.parametrize("rule", ["average", "elastic"])
def test_who_has_nothing_to_bring_takes_nothing_back(stores: Stores, rule: str) -> None:
    """Steps that are a multiple of the interval, then a long validation: others learn meanwhile."""
    models = [make_model(), make_model()]
    idle = make_callback(stores, models[1], 1, rule=rule, sync_interval=8)
    kernel = models[0].layers[0].kernel
    meeting = Synchroniser(make_context(stores), "model-0", models[0], rule, 0.5)

    class Learns(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_begin(self, logs: Any = None) -> None:
            # Not by this worker: it meets for the last time before that.
            models[1].optimizer.learning_rate = 0.0

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                kernel.assign(keras.ops.full(kernel.shape, 100.0))
                meeting.sync()
                self.server = read_servers(stores)

    learns = Learns()
    meeting.join()
    fit(models[1], idle, learns)
    assert idle.num_syncs == 2
    np.testing.assert_array_equal(read_servers(stores), learns.server)
    np.testing.assert_array_equal(models[1].layers[0].kernel.numpy(), learns.server)
    meeting.close()


def read_servers(stores: Stores) -> Any:
    """The first kernel as the servers have it."""
    model = make_model(9)
    meeting = Synchroniser(make_context(stores, 1), "model-0", model, "average", 0.5)
    meeting.join()
    meeting.close()
    return model.layers[0].kernel.numpy()


def test_a_fit_that_failed_can_be_tried_again(stores: Stores) -> None:
    model = make_model()
    callback = make_callback(stores, model)

    class Fails(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 3:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fit(model, callback, Fails())
    fit(model, callback)
    assert callback.num_syncs == 6


def test_other_models_are_refused_at_once(stores: Stores) -> None:
    model = make_model()
    fit(model, make_callback(stores, model))
    other = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    other.compile("sgd", "mse")
    callback = make_callback(stores, other, 1)
    with pytest.raises(fl.FlightServerError, match="All workers must build the same model"):
        fit(other, callback)


@pytest.mark.parametrize(
    ("wishes", "text"),
    [
        ({"sync_interval": 0}, "sync_interval=0"),
        ({"sync_interval": True}, "sync_interval=True"),
        ({"rule": "sum"}, "rule='sum'"),
        ({"alpha": 0.5}, "alpha is for rule='elastic'"),
        ({"rule": "elastic", "alpha": 1.0}, "alpha=1.0"),
        ({"wait_s": -1}, "wait_s=-1"),
        ({"wait_s": float("nan")}, "wait_s=nan"),
        ({"model": "model"}, "got a str"),
        ({"rank": None}, "on evaluator:0"),
    ],
)
def test_refusals(wishes: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make_callback(Stores(), **{"model": make_model(), **wishes})
