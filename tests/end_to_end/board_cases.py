"""Functions of the tests of TensorBoard: in a module that nodes can import."""

from __future__ import annotations

from typing import Any


def train(ctx: Any) -> None:
    """Trains, then waits until the driver has seen what it wants to see."""
    import time
    from pathlib import Path

    import keras

    with ctx.strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    rows = ctx.dataset("train", batch_size=50, features="x", label="y")
    model.fit(rows, epochs=2, verbose=0, callbacks=ctx.callbacks())
    deadline = time.monotonic() + 90
    while ctx.args and not Path(ctx.args).exists() and time.monotonic() < deadline:
        time.sleep(0.1)


def fail(ctx: Any) -> None:
    raise ValueError("on purpose")


def be_lost_once(ctx: Any) -> None:
    """Its trainer is killed once the first board was seen; then it waits for the next one."""
    import os
    import signal
    import time
    from pathlib import Path

    first, second, begun = (Path(ctx.args, name) for name in ("first", "second", "begun"))
    is_restart = begun.exists()  # a board can be seen before the first function begins
    begun.touch()
    deadline = time.monotonic() + 90
    while not (second if is_restart else first).exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    if not is_restart:
        os.kill(os.getpid(), signal.SIGKILL)
